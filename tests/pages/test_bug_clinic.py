"""The Bug clinic without a browser: every bug, the numbers beside it, the game, and texts that could break it.

python -m pytest tests/pages/test_bug_clinic.py
"""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from model import catalog
from model.base import Model
from model.bug_clinic import clinic
from model.bug_clinic.bugs import BUGS, BY_KEY, Bug
from model.bug_clinic.laws import LAWS
from model.bug_clinic.spot import NOT_TO_SEE, puzzle
from tests.model.huggingface.families import save
from tests.pages.explore import array
from ui.examples import FIRST
from viz.bug_clinic import Finding, amount_text

ROOT = Path(__file__).parents[2]


class Clinic:
    """One reader's page. Every run of it has to end without an exception."""

    def __init__(self, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        self.app.query_params.update(query)
        self.app.switch_page("pages/bug_clinic.py")
        self.run()

    def run(self) -> "Clinic":
        self.app.run()
        assert not self.app.exception, self.app.exception[0].stack_trace
        return self

    def type(self, text: str) -> "Clinic":
        self.app.text_area(key="text").set_value(text)
        return self.run()

    def choose(self, bug: Bug) -> "Clinic":
        """The way a reader does: its number, then which way."""
        self.app.radio(key="bug_number").set_value(bug.number)
        self.run()
        if bug.variant:
            self.app.selectbox(key="bug").set_value(bug.key)
            self.run()
        return self

    def press(self, key: str) -> "Clinic":
        self.app.button(key=key).click()
        return self.run()

    def play(self) -> "Clinic":
        self.app.segmented_control(key="mode").set_value("spot")
        return self.run()

    def figure(self) -> dict[str, Any]:
        (chart,) = self.app.get("plotly_chart")
        return json.loads(chart.proto.spec)

    def weights(self, xaxis: str = "x") -> np.ndarray:
        """float [T,T], NaN where blocked; x is the large picture, x2 the right version."""
        traces = self.figure()["data"]
        (z,) = [trace["z"] for trace in traces if trace["name"] == "weights" and trace.get("xaxis", "x") == xaxis]
        return array(z)

    def laws(self) -> dict[str, tuple[str, str]]:
        """For each law in words what the table says with the bug and right, in the table's order."""
        (table,) = [one.proto.body for one in self.app.get("html") if "numbers laws" in one.proto.body]
        rows = [re.findall("<td.*?>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
        return {plain(re.sub(" <span.*", "", law)): (plain(wrong), plain(right)) for law, wrong, right in rows}

    def words(self) -> str:
        """All sentences, markdown's backslashes left out."""
        kinds = ("markdown", "caption", "info", "error", "success")
        found = [one.value for kind in kinds for one in self.app.get(kind)]
        return re.sub(r"\\([^A-Za-z0-9])", r"\1", " ".join(found))

    @property
    def url(self) -> dict[str, str]:
        return dict(self.app.query_params)


def plain(cell: str) -> str:
    return html.unescape(re.sub("<.*?>", "", cell))


@pytest.fixture(scope="module")
def page() -> Clinic:
    """One that only chooses bugs."""
    return Clinic()


class TestAllBugs:
    def test_the_first_view_shows_a_bug_on_a_padded_row(self) -> None:
        page = Clinic()
        assert not page.app.error
        assert page.weights().shape == page.weights("x2").shape
        assert "8 padding" in page.words()
        assert "Row 2 was added" in page.words()
        assert len(page.laws()) == len(LAWS)

    @pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.key)
    def test_shows_what_was_measured(self, page: Clinic, story: Model, bug: Bug) -> None:
        page.choose(bug)
        lines = clinic.prepared(story, FIRST).lines
        trace = story.run(story.encode(list(lines), "left"))
        layer, head = catalog.first_head(story)
        found = clinic.examine(story, trace, bug, layer, 0)
        assert next(iter(page.laws())) == LAWS[bug.law].words
        for key, law in LAWS.items():
            said = page.laws()[law.words]
            for text, verdict in zip(said, found.verdicts[key], strict=True):
                assert text == amount_text(Finding(verdict.amount, verdict.broken, law.of, bool(verdict.error)))
        wrong, right = page.laws()[LAWS[bug.law].words]
        assert wrong.startswith("broken")
        assert right.startswith("held")
        assert page.app.code[0].value == f"- {bug.wrong}\n+ {bug.right}"
        assert page.url.get("bug", BUGS[0].key) == bug.key
        if found.wrong is None:
            assert "without overflow" in page.words()
            np.testing.assert_allclose(np.nan_to_num(page.weights()), found.right.weights[head], atol=1e-6)
            return
        weights = found.wrong.weights[head].nan_to_num(0.0).numpy()
        np.testing.assert_allclose(np.nan_to_num(page.weights()), weights, atol=1e-6)
        np.testing.assert_allclose(np.nan_to_num(page.weights("x2")), found.right.weights[head], atol=1e-6)
        assert np.array_equal(np.isnan(page.weights()), (found.wrong.masked[head] == -np.inf).numpy())
        if bug.dtype != clinic.torch.float16:
            most = float(found.difference().max())
            assert f"**{most:.3g}**" in page.words()
            assert f"{found.loss[0]:.2f}" in page.words()
        else:
            assert "NaN at 8 of 31 positions" in page.words()

    def test_the_right_version_alone(self, page: Clinic) -> None:
        page.choose(BY_KEY["or"])
        right = page.weights("x2")
        page.app.toggle(key="bug_on").set_value(False)
        page.run()
        np.testing.assert_array_equal(page.weights(), right)
        assert len([trace for trace in page.figure()["data"] if trace["name"] == "weights"]) == 1
        page.app.toggle(key="bug_on").set_value(True)
        page.run()

    def test_says_where_a_bug_leaves_no_trace(self) -> None:
        page = Clinic(bug="first-layer", layer="0")
        assert "Layer 0 has its mask. Here the bug leaves no trace: it takes a second layer" in page.words()
        page = Clinic(bug="half-added", pad="right")
        assert "Here the bug leaves no trace: it takes a row that is blocked throughout" in page.words()
        page = Clinic(bug="wrong-axis", pad="right")
        assert "padding's own rows only" in page.words()

    def test_a_link_brings_the_bug_back_and_nonsense_does_not_harm(self) -> None:
        page = Clinic(bug="scale-none", layer="2", head="1", pad="right", text="a b c\nd e f g h i j")
        assert page.app.selectbox(key="bug").value == "scale-none"
        assert page.url.items() >= {"bug": "scale-none", "layer": "2", "head": "1", "pad": "right"}.items()
        assert Clinic(bug="<b>", mode="7").app.session_state["bug"] == BUGS[0].key

    def test_choices_outlive_another_page(self) -> None:
        page = Clinic().play()
        page.app.segmented_control(key="mode").set_value("all")
        page.run().choose(BY_KEY["diagonal"]).choose(BY_KEY["or"])
        page.app.switch_page("app.py")
        page.run()
        page.app.switch_page("pages/bug_clinic.py")
        page.run()
        assert page.app.radio(key="bug_number").value == 9

    @pytest.mark.parametrize(
        "text",
        [
            "a",
            "😀",
            "<script>alert(1)</script>",
            "**x** $y$ :red[z] `",
            "a\n" * 40,
            "猫" * 3000,
            "word " * 900,
        ],
    )
    def test_no_text_breaks_it(self, text: str) -> None:
        page = Clinic(text=text)
        for bug in BUGS:
            page.choose(bug)
            assert page.weights().size > 0
        page.play()
        assert page.weights().size > 0

    def test_a_text_of_nothing_is_asked_for(self) -> None:
        page = Clinic().type("  \n ")
        assert "Type a text" in page.app.info[0].value
        assert len(page.type("some words").app.get("plotly_chart")) == 1

    def test_what_is_cut_is_said(self) -> None:
        assert f"the first {clinic.MOST_TOKENS} tokens" in Clinic(text="word " * 900).words()
        assert "32 more are left out" in Clinic(text="a line\n" * 40).words()


@pytest.mark.parametrize("name", ["bert", "t5", "mistral"])
def test_models_that_are_not_ours(name: str, tmp_path: Path) -> None:
    page = Clinic(model=str(save(name, tmp_path / name)), text="the cat sat on a mat and then it saw the cat")
    for bug in BUGS:
        page.choose(bug)
        assert not page.app.error
        assert page.weights().size > 0
    page.choose(BY_KEY["unprojected"])
    assert "its queries stand in" in page.words()
    page.play()
    assert "Which bug is this?" in page.words()


class TestSpotTheBug:
    def answer(self, page: Clinic) -> str:
        """The key of the bug that is asked, as another reader of the same rules finds it."""
        state = page.app.session_state["spot"]
        model = catalog.load("story")
        trace = model.run(model.encode(list(clinic.prepared(model, FIRST).lines), "left"))
        asked = puzzle(model, trace, 0, state["number"], state["last"])
        assert asked is not None
        names = [page.app.button(key=f"candidate_{place}").label for place in range(4)]
        assert names == [BY_KEY[key].name for key in asked.candidates]
        return asked.bug

    def press(self, page: Clinic, bug: str, *, right: bool) -> None:
        places = [n for n in range(4) if (page.app.button(key=f"candidate_{n}").label == BY_KEY[bug].name) == right]
        page.press(f"candidate_{places[0]}")

    def test_from_the_first_puzzle_to_the_third(self) -> None:
        page = Clinic().play()
        first = self.answer(page)
        assert first not in NOT_TO_SEE
        assert page.url["mode"] == "spot"
        assert BY_KEY[first].signs not in page.words()
        page.press("hint")
        assert BY_KEY[first].hint in page.words()
        self.press(page, first, right=True)
        assert page.app.success[0].value.startswith("Right")
        assert BY_KEY[first].signs in page.words()
        assert BY_KEY[first].wrong in page.app.code[0].value
        assert "1 of 1 right" in page.words()
        assert len([trace for trace in page.figure()["data"] if trace["name"] == "weights"]) == 2
        assert all(page.app.button(key=f"candidate_{place}").disabled for place in range(4))

        page.press("another")
        second = self.answer(page)
        assert BY_KEY[second].number != BY_KEY[first].number
        self.press(page, second, right=False)
        assert page.app.error[0].value.startswith(f"No: it is {BY_KEY[second].name}")
        assert "1 of 2 right" in page.words()

        page.press("another")
        third = self.answer(page)
        assert BY_KEY[third].number != BY_KEY[second].number
        assert not page.app.success
        self.press(page, third, right=True)
        page.press("see")
        assert page.url["bug"] == third
        page.play()
        assert "2 of 3 right" in page.words()

    def test_another_text_asks_anew(self) -> None:
        page = Clinic().play()
        self.press(page, self.answer(page), right=True)
        page.type("In the basket there were apples, pears, plums, cherries, nuts and a cake.")
        assert not page.app.success
        assert not page.app.button(key="candidate_0").disabled
