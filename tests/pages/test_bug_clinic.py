"""The Bug clinic page without a browser: every bug, its numbers, the game, and texts that could break it."""

import html
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch

from model import catalog
from model.base import Model
from model.bug_clinic import comparison
from model.bug_clinic.bugs import BUGS, BY_KEY, Bug, token_in_view_split
from model.bug_clinic.comparison import compare, examine
from model.bug_clinic.laws import LAWS
from model.bug_clinic.spot import INVISIBLE_BUGS, puzzle
from tests.model.bug_clinic.texts import read
from tests.model.huggingface import families
from tests.pages.page import Page, array, plain
from tests.pages.test_chinese import english, texts
from ui.controls import OTHER
from ui.sidebar.models import FIRST
from viz.bug_clinic import amount_text


class Clinic(Page):
    """One user's page."""

    SCRIPT = "pages/bug_clinic.py"

    def choose(self, bug: Bug) -> Self:
        """Choose a bug as a user does: its title, then its variant, each only if it changes."""
        if self.app.selectbox(key="bug_title").value != bug.title:
            self.set(bug_title=bug.title)
        if bug.variant and self.app.selectbox(key="bug").value != bug.key:
            self.set(bug=bug.key)
        return self

    def play(self) -> Self:
        return self.set(mode="spot")

    def figure(self) -> dict[str, Any]:
        (figure,) = self.figures().values()
        return figure

    def weights(self, xaxis: str = "x") -> np.ndarray:
        """Return the weights [T,T], NaN where blocked. xaxis: "x" of the large picture, "x2" of the correct version."""
        traces = self.figure()["data"]
        (z,) = [trace["z"] for trace in traces if trace["name"] == "weights" and trace.get("xaxis", "x") == xaxis]
        return array(z)

    def rows(self) -> list[str]:
        """Return the label of each row: its position and what it holds."""
        (trace,) = [one for one in self.figure()["data"] if one["name"] == "weights" and one.get("yaxis", "y") == "y"]
        return list(trace["y"])

    def pieces(self) -> tuple[str, ...]:
        """Return the tokens of the batch row that is shown."""
        state = self.app.session_state
        model = catalog.load(state["other"] if state["model"] == OTHER else state["model"])
        return model.encode(list(comparison.prepare_text(model, state["text"]).lines), state["pad"]).pieces[0]

    @property
    def head(self) -> int:
        return self.value("head")

    def laws(self) -> dict[str, tuple[str, str]]:
        """Return verdicts (with the bug, correct version) by the property's words; the one beside the picture first."""
        m = re.search("<p>(.*?) <span.*?<p>with the bug (.*?) · correct version (.*?)</p>", self.law_html(), re.DOTALL)
        assert m
        tables = [one for one in self.html() if "numbers laws" in one]
        rows = [re.findall("<td.*?>(.*?)</td>", row) for table in tables for row in table.split("<tr>")[2:]]
        found = [m.groups(), *((re.sub(" <span.*", "", law), wrong, right) for law, wrong, right in rows)]
        return {plain(law): (plain(wrong), plain(right)) for law, wrong, right in found}

    def law_html(self) -> str:
        """Return the HTML of the property beside the picture."""
        (found,) = [one for one in self.html() if "<p>with the bug " in one]
        return found


@pytest.fixture(scope="module")
def page() -> Clinic:
    """Return a page for tests that only choose bugs."""
    return Clinic()


class TestAllBugs:
    def test_the_first_view_shows_a_bug_on_a_padded_row(self) -> None:
        page = Clinic()
        assert not page.app.error
        assert "8 padding" in page.words()
        assert not any("<pad>" in name for name in page.rows()), "the opening view is the text"
        assert "Row 2 was added" in page.words()
        assert len(page.laws()) == len(LAWS)

    @pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.key)
    def test_shows_what_was_measured(self, page: Clinic, story: Model, bug: Bug) -> None:
        page.choose(bug)
        typed = comparison.prepare_text(story, FIRST).lines
        trace = story.run(story.encode(list(typed), "left"))
        layer = catalog.first_head(story)[0]
        pair, found = compare(story, trace, 0, bug.key, layer), examine(story, trace, 0, bug.key, layer)
        assert next(iter(page.laws())) == LAWS[bug.law].words
        laws = page.laws()
        for key, law in LAWS.items():
            for text, verdict in zip(laws[law.words], found.verdicts[key], strict=True):
                shown = replace(verdict, error="" if key == bug.law else verdict.error)
                crashes = key == bug.law and verdict.error
                assert text == ("crashes" if crashes else amount_text(shown))
        folded = [found.verdicts[key][0] for key in LAWS if key != bug.law and not found.broken(key)]
        unknown = sum(math.isnan(verdict.amount) for verdict in folded)
        held = len(folded) - unknown
        (fold,) = [one for one in page.app.expander if one.label.startswith(tuple("123456789"))]
        assert fold.label == " · ".join(
            [f"{held} propert{'y holds' if held == 1 else 'ies hold'}"] * bool(held)
            + [f"{unknown} not measured here"] * bool(unknown)
        )
        assert "<b>The violated property</b>" in page.law_html()
        wrong, right = laws[LAWS[bug.law].words]
        assert wrong.startswith("crashes" if bug.law == "runs" else "violated")
        assert right.startswith("holds")
        assert {line[2:] for line in page.app.code[0].value.splitlines() if line[0] != "+"} == set(
            bug.wrong.splitlines()
        )
        assert page.url.get("bug", BUGS[0].key) == bug.key
        head, drawn = page.head, np.nan_to_num(page.weights())
        if pair.wrong is None or not pair.shows_in_heatmap():
            np.testing.assert_allclose(drawn, pair.right.weights[head], atol=1e-6)
            assert not page.app.toggle, "a switch that would change nothing"
            assert pair.error in page.words()
            assert pair.error or "the same with and without the bug" in page.words()
            return
        np.testing.assert_allclose(drawn, pair.wrong.weights[head].nan_to_num(0.0), atol=1e-6)
        assert np.array_equal(np.isnan(page.weights()), (pair.wrong.masked[head] == -np.inf).numpy())
        assert float(pair.change("weights")[head].max()) > 0.1, "a head that shows it"
        if bug.key != "view":
            np.testing.assert_allclose(np.nan_to_num(page.weights("x2")), pair.right.weights[head], atol=1e-6)
        if bug.dtype != torch.float16:
            assert f"**{float(pair.change().max()):.3g}**" in page.words()
            assert f"{found.loss[0]:.2f}" in page.words()
        else:
            assert "NaN at 8 of 31 positions" in page.words()

    def test_the_rows_of_a_head_cut_by_view_bear_the_names_of_what_they_hold(self) -> None:
        page = Clinic(bug="view", text="a b c d e f g h", head="2")
        assert page.head == 2
        pieces = page.pieces()
        expected = [token_in_view_split(2, position, 6, len(pieces)) for position in range(len(pieces))]
        names = [name.split(": ", 1)[1] for name in page.rows()]
        assert names == [html.escape(f"{pieces[token]}:{part}", quote=False) for token, part in expected]
        (first, begins), (last, ends) = expected[0], expected[-1]
        assert (begins, ends) != (0, 5), "of its ends it sees some parts only"
        assert f"only positions {first} to {last}, from part {begins} of the first to part {ends} of" in page.words()
        page.set(bug_on=False)
        assert [name.split(": ", 1)[1] for name in page.rows()] == [html.escape(p, quote=False) for p in pieces]

    def test_a_chosen_head_stays_until_another_bug_needs_one(self, story: Model) -> None:
        page = Clinic(bug="repeat", head="0")
        assert page.head == 0, "as the link says"
        assert "Head 0 gets its own row's mask. Of 6 heads, 1, 3 and 5 get another row's mask." in page.words()
        page.choose(BY_KEY["or"]).choose(BY_KEY["repeat"])
        assert page.head in (1, 3, 5)
        assert "gets row 2's mask" in page.words()

    def test_the_head_that_is_chosen_is_in_the_link_although_it_is_the_models_first(self) -> None:
        page = Clinic(text="Once upon a time\nThe girl saw a dog and the dog saw the girl")
        first = catalog.first_head(catalog.load("story"))
        assert (page["layer"], page.head) != first
        page.set(layer=first[0], head=first[1])
        assert Clinic(**page.url).head == first[1]

    def test_crashes_say_pytorchs_own_sentence(self) -> None:
        page = Clinic(bug="if-mask")
        assert "Boolean value of Tensor with more than one value is ambiguous" in page.app.error[0].value
        assert page.weights().size > 0
        wrong, right = page.laws()[LAWS["runs"].words]
        assert (wrong, right) == ("crashes", "holds: 0")
        assert {one for law, (one, _) in page.laws().items() if law != LAWS["runs"].words} == {"–"}

    @pytest.mark.parametrize("text", ["To be or not to be, that is the question."])
    def test_says_that_the_answer_is_read_only_where_the_table_says_so(self, page: Clinic, text: str) -> None:
        page.type(text)
        for bug in BUGS:
            page.choose(bug)
            leaks = page.laws()[LAWS["causal"].words][0].startswith("violated")
            assert not ("can read the token that it must predict" in page.words() and not leaks), bug.key
            assert not ("no later token is read" in page.words() and leaks), bug.key
        page.type(FIRST)

    @pytest.mark.parametrize(
        ("text", "key", "where", "stated"),
        [
            ("hm", "after-softmax", {"layer": "0", "head": "3"}, False),  # a changed denominator moves the loss
            ("Tyger Tyger, burning bright,", "query-axis", {"layer": "4", "head": "2"}, False),
            ("猫坐在垫子上。", "query-axis", {}, False),
            ("hm", "transposed", {}, True),
            ("猫坐在垫子上。", "or", {}, True),
        ],
    )
    def test_a_reason_for_the_loss_takes_a_target_that_is_looked_at(
        self, text: str, key: str, where: dict[str, str], *, stated: bool
    ) -> None:
        page = Clinic(bug=key, text=text, **where)
        assert page.laws()[LAWS["target"].words][0].startswith("violated")
        looks = np.nan_to_num(page.weights())[: len(page.pieces()), : len(page.pieces())].diagonal(1) > 0
        assert looks.any() == stated
        reasons = ("sees its target", "can read the token that it must predict")
        assert any(reason in page.words() for reason in reasons) == stated

    def test_a_loss_that_is_lower_by_chance_is_not_put_down_to_the_target(self, folders: dict[str, str]) -> None:
        """A model with random weights makes no use of a target that it can read."""
        text = "then saw on red old a sat sat the"
        words = Clinic(model=folders["mistral"], text=text, bug="first-layer", layer="1").words()
        assert "It is lower, and the model can read the token that it must predict." in words
        assert "because" not in words

    @pytest.mark.parametrize(("text", "stated"), [("no no no no no no no no", False), ("Once upon a time", True)])
    def test_the_training_is_a_reason_where_the_next_token_has_the_lower_loss(self, text: str, *, stated: bool) -> None:
        words = Clinic(bug="targets", layer="1", head="1", text=text).words()
        right, wrong = (float(one) for one in re.findall(r"target, (?:\w+ has a mean loss of )?\**([\d.]+)\**", words))
        assert (right < wrong) == stated
        assert ("was trained to predict the next one" in words) == stated

    def test_the_right_version_alone(self, page: Clinic) -> None:
        page.choose(BY_KEY["or"])
        right = page.weights("x2")
        page.set(bug_on=False)
        np.testing.assert_array_equal(page.weights(), right)
        assert len([trace for trace in page.figure()["data"] if trace["name"] == "weights"]) == 1
        page.set(bug_on=True)

    def test_says_where_a_bug_leaves_no_trace(self) -> None:
        page = Clinic(bug="first-layer", layer="0")
        assert "Layer 0 is still masked: the bug begins in layer 1. Choose a later layer." in page.words()
        assert "it needs" not in page.words()
        one = Clinic(bug="view", layer="0", head="1", text="a\nbb")
        assert "head 1 sees only position 0, its parts 3 to 5:" in one.words()
        page = Clinic(bug="half-added", pad="right")
        assert "The bug has no effect here: it needs a fully blocked row" in page.words()
        page = Clinic(bug="wrong-axis", pad="right")
        assert "only in the rows of padding" in page.words()

    def test_what_is_cut_is_said(self) -> None:
        assert f"the first {comparison.MAX_TOKENS} tokens" in Clinic(text="word " * 900).words()
        assert "32 more are left out" in Clinic(text="a line\n" * 40).words()


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_models_that_are_not_ours(name: str, folders: dict[str, str]) -> None:
    page = Clinic(model=folders[name], text="the cat sat on a mat and then it saw the cat")
    for bug in BUGS[::5]:  # all bugs: tests/model/bug_clinic/test_examination.py
        page.choose(bug)
        assert all(error.value.startswith("Crashes: ") for error in page.app.error)
        assert page.weights().size > 0
    page.choose(BY_KEY["unprojected"])
    assert "its queries are used" in page.words()
    page.choose(BY_KEY["scale-divided"])
    own_scale = "The bug has no effect here: it needs a model that divides its scores by √d" in page.words()
    assert own_scale == (name == "t5")
    assert (page.laws()[LAWS["scaled"].words] == ("–", "–")) == own_scale
    page.play()
    assert "Which bug is this?" in page.words()


def test_what_float16_cannot_hold_is_not_put_down_to_the_bug(tmp_path: Path) -> None:
    network = families.random_network("gpt2")
    for block in network.transformer.h:
        block.attn.c_attn.bias.data[:48] += 150  # queries and keys, so that q·k exceeds 65,504
    network.save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    page = Clinic(model=str(tmp_path), text="the cat sat on a mat and then it saw one big red ball", bug="half-added")
    assert "NaN at 7 of 21 positions, those with no allowed key" in page.words()
    page.set(pad="right")
    assert "The bug has no effect here" in page.words()
    assert "NaN spreads" not in page.words()


def test_heads_cut_by_view_that_share_keys_bear_the_names_of_the_parts_of_keys(folders: dict[str, str]) -> None:
    text = "the cat sat on a mat and it saw the cat"
    page = Clinic(model=folders["llama"], bug="view", text=text, layer="1", head="1")
    pieces = page.pieces()
    length = len(pieces)
    (trace,) = [one for one in page.figure()["data"] if one["name"] == "weights"]
    queries, keys = ([label.split(": ", 1)[1] for label in trace[axis]] for axis in "yx")
    named = lambda found: [f"{pieces[token]}:{part}" for token, part in found]  # noqa: E731
    for labels, split in (queries, (1, 4)), (keys, (0, 2)):
        parts = (token_in_view_split(split[0], position, split[1], length) for position in range(length))
        assert list(map(html.unescape, labels)) == named(parts)
    last, ends = token_in_view_split(0, length - 1, 2, length)
    assert f"only positions 0 to {last}, from part 0 of the first to part {ends} of" in page.words()
    assert "into 4 parts, one per head; a key into 2, one per key-value head" in page.words()


class TestSpotTheBug:
    def answer(self, page: Clinic) -> str:
        """Return the key of the bug in the current puzzle."""
        question = page.app.session_state["spot"]["asked"]
        names = [page.app.button(key=f"candidate_{n}").label for n in range(4)]
        assert names == [BY_KEY[key].name for key in question.candidates]
        return question.bug

    def press(self, page: Clinic, bug: str, *, right: bool) -> None:
        numbers = [n for n in range(4) if (page.app.button(key=f"candidate_{n}").label == BY_KEY[bug].name) == right]
        page.press(f"candidate_{numbers[0]}")

    def test_from_the_first_puzzle_to_the_third(self) -> None:
        page = Clinic().play()
        first = self.answer(page)
        assert first not in INVISIBLE_BUGS
        assert page.url["mode"] == "spot"
        assert page.url["puzzle"] == str(page.app.session_state["spot"]["asked"].number)
        assert self.answer(Clinic(**page.url)) == first, "as after a reload"
        assert BY_KEY[first].signs not in page.words()
        assert not any(re.search(r":\d$", name) for name in page.rows()), "a row's name would be the answer"
        page.press("hint")
        assert BY_KEY[first].hint in page.words()
        self.press(page, first, right=True)
        assert page.app.success[0].value.startswith("Correct")
        assert BY_KEY[first].signs in page.words()
        assert BY_KEY[first].wrong.splitlines()[0] in page.app.code[0].value
        assert "1 of 1 correct" in page.words()
        assert "Why not" not in page.words()
        assert re.search(r"The clue: .*\d.* in the correct version, and .*\d.* here\.", page.words())
        assert all(page.app.button(key=f"candidate_{n}").disabled for n in range(4))

        page.press("another")
        second = self.answer(page)
        assert BY_KEY[second].title != BY_KEY[first].title
        self.press(page, second, right=False)
        assert page.app.error[0].value.startswith(f"No: it is {BY_KEY[second].name}")
        chosen = BY_KEY[page.app.session_state["spot"]["answer"]].name
        assert re.search(rf"Why not \*{re.escape(chosen)}\*: .*\d.* with that bug, and .*\d.* here\.", page.words())
        assert "1 of 2 correct" in page.words()

        page.press("another")
        third = self.answer(page)
        assert BY_KEY[third].title != BY_KEY[second].title
        assert not page.app.success
        self.press(page, third, right=True)
        page.press("see")
        assert page.url.get("bug", BUGS[0].key) == third
        page.play()
        assert "2 of 3 correct" in page.words()

    @pytest.mark.parametrize("puzzle", [13, 27, 333])  # a mask inverted, off by one, transposed
    def test_the_picture_is_hatched_where_the_bug_blocks(self, puzzle: int) -> None:
        page = Clinic(puzzle=str(puzzle), text="Once upon a time there was a king, and he had a son.").play()
        blocked, key = page.weights(), self.answer(page)
        assert np.isnan(blocked).any()
        self.press(page, key, right=True)
        np.testing.assert_array_equal(blocked, page.weights())

    @pytest.mark.parametrize("asks_for_it", [True, False])
    def test_of_a_part_of_a_token_and_a_token_only_the_shown_one_is_named(
        self, story: Model, asks_for_it: bool
    ) -> None:
        trace = read(story, FIRST)
        puzzles = (puzzle(story, trace, 0, number) for number in range(200))
        found = next(one for one in puzzles if "view" in one.candidates and (one.bug == "view") == asks_for_it)
        page = Clinic(puzzle=str(found.number)).play()
        self.press(page, "view", right=True)
        label = r"“[^”]+:\d”" if asks_for_it else r"“[^”:]+”"  # a part of a token has a number
        named = rf"the weight in row \d+ and column \d+ \({label} and {label} here\) is "
        where = "The clue: " if asks_for_it else r"Why not \*Heads split by view\*: "
        there = "in the correct version" if asks_for_it else "with that bug"
        assert re.search(rf"{where}{named}[01]\.\d\d {there}, and [01]\.\d\d here\.", page.words())

    def test_another_text_asks_anew(self) -> None:
        page = Clinic().play()
        self.press(page, self.answer(page), right=True)
        page.type("In the basket there were apples, pears, plums, cherries, nuts and a cake.")
        assert not page.app.success
        assert not page.app.button(key="candidate_0").disabled

    def test_every_session_opens_with_another_puzzle(self) -> None:
        numbers = {Clinic(mode="spot").app.session_state["spot"]["asked"].number for _ in range(4)}
        assert len(numbers) > 1

    def test_a_link_that_was_asked_for_brings_its_puzzle(self) -> None:
        page = Clinic(puzzle="7", text="In the basket there were apples, pears, plums and a cake.")
        question = page.app.session_state["spot"]["asked"]
        assert question.number == 7
        assert any("puzzle=7" in one.value and "text=" in one.value for one in page.app.code)
        assert Clinic(puzzle="7", text=page.app.session_state["text"]).app.session_state["spot"]["asked"] == question


@pytest.mark.usefixtures("in_chinese")
def test_in_chinese_no_puzzle_is_told_in_english() -> None:
    page = Clinic(lang="zh", puzzle="7").press("hint")
    assert not [found for shown in texts(page.app) for found in english(shown)]
    question = page.app.session_state["spot"]["asked"]
    wrong = next(n for n, key in enumerate(question.candidates) if key != question.bug)
    page.press(f"candidate_{wrong}")
    assert page.app.error
    assert not [found for shown in texts(page.app) for found in english(shown)]
