"""The Lessons page: it asks before it shows, its answers are those of the run, and it opens a teacher's own lesson."""

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl

import numpy as np
import pytest

from i18n import LANGUAGES
from lessons.reading import FOLDER, shelf
from model import catalog
from model.images import captioner
from model.images.scenes import render, scene_of
from tests.apptest import charts
from tests.pages.page import Page
from tests.viz.packet import unpacked as header_and_body
from ui.lessons import steps
from ui.lessons.shelves import packed, unpacked
from ui.sidebar import models

OWN = """---
title: Mine
aim: A lesson of my own.
minutes: 1
text: one two three
---

## A <b>step</b>

```run
query: 2
ask: sees
```

Some <script>alert(1)</script> prose.
"""


class Lessons(Page):
    """One user's page."""

    SCRIPT = "pages/lessons.py"

    def choices(self) -> list[str]:
        return [button.label for button in self.app.button if str(button.key).startswith("answer_")]

    def verdict(self) -> str:
        found = [one for one in self.html() if 'class="verdict' in one]
        return re.sub("<.*?>", " ", found[0]).strip() if found else ""

    def shown(self) -> str:
        return "".join(self.html())

    def typed(self, answer: str) -> "Lessons":
        """Type an answer and send it in one run, as a form does."""
        self.widget("typed_answer").set_value(answer)
        return self.press("check_answer")

    def has_picture(self) -> bool:
        return bool(charts(self.app))


def test_what_is_asked_is_shown_once_it_is_answered_and_stays_answered() -> None:
    page = Lessons(lesson="causal_mask")
    assert len(page.choices()) == 4
    assert not page.has_picture()
    page.press("answer_0")
    expected = "How many tokens may the highlighted one attend to? Your answer: 8. Not quite. The answer is: 9"
    assert " ".join(page.verdict().split()).startswith(expected)
    assert page.has_picture()
    page.press("next").press("previous")
    assert " ".join(page.verdict().split()).startswith(expected)
    assert not page.choices()
    assert page.app.query_params["answers"] == "1-0"
    assert " ".join(Lessons(**page.app.query_params).verdict().split()) == (
        " ".join(page.verdict().split())
    )  # after a reload


def test_the_answer_can_be_shown_without_a_guess_and_counts_as_none() -> None:
    page = Lessons(lesson="causal_mask").press("reveal")
    assert "The answer is: 9" in page.verdict()
    assert "Your answer" not in page.verdict()
    page.app.query_params["step"] = "6"
    page.run()
    assert "answers correct" not in page.shown()
    assert 'class="told"' in page.shown()


def test_a_link_for_others_has_no_answers() -> None:
    page = Lessons(lesson="causal_mask").press("answer_0")
    page.app.session_state["link"] = True  # the popover is open
    assert not any("answers=" in one.value for one in page.run().app.code)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_fixed_guess_answers_more_than_half_of_a_kind_of_question(language: str) -> None:
    """By its text and by its position; questions on rises and falls count as one kind, and so do those on shares. And
    always choosing the same button is right in less than half of each lesson."""
    alike = {"texts": "loss", "padding": "future", "weight": "future"}
    right: dict[str, list[int]] = defaultdict(list)
    for shelved in shelf(FOLDER, language):
        questions = [step for step in shelved.lesson.steps if step.ask]
        answers = [steps.answered(step, *steps.pair(step)) for step in questions]
        correct = [answer.right for answer in answers]
        for step, answer in zip(questions, answers, strict=True):
            if answer.number is None:  # otherwise it is typed
                right[alike.get(step.ask.kind, step.ask.kind)] += answer.right
        for choice in range(6):
            assert 2 * sum(choice in choices for choices in correct) < len(questions), (shelved.name, choice, correct)
    assert {"loss", "lower", "row", "sees", "looks", "picture", "future"} <= set(right)
    for kind, choices in right.items():
        largest = max(choices.count(choice) for choice in choices)
        assert len(choices) == 1 or largest <= len(choices) / 2, (kind, choices)


def test_nothing_names_the_masks_that_are_asked_for_before_they_are_guessed() -> None:
    page = Lessons(lesson="padding", step="2")
    (chart,) = charts(page.app).values()
    figure = chart["figure"]
    assert "causal" not in chart["alt"]
    assert "causal" not in json.dumps([one.get("hovertemplate", "") for one in figure["data"]])
    assert not any("causal" in one.proto.body for one in page.app.get("html") if 'class="key"' in one.proto.body)
    page.press("answer_0")
    assert any("causal" in one.proto.body for one in page.app.get("html") if 'class="key"' in one.proto.body)


def test_cross_attention_shows_the_tokens_of_the_source_that_it_asks_for() -> None:
    page = Lessons(lesson="translator", step="3")
    source, output = re.findall(r'<ol class="tokens">(.*?)</ol>', page.shown())
    assert "".join(re.findall(r"<span>(.*?)</span>", source)).startswith("the")
    assert 'class="query"' in output
    assert 'class="query"' not in source


def test_an_image_is_shown_plain_until_it_is_answered_and_then_as_the_token_attends() -> None:
    page = Lessons(lesson="words_and_images", step="2")
    assert page.choices() == [
        "The large yellow square",
        "The large red triangle",
        "The small blue circle",
        "None of the shapes",
    ]
    assert page.shown().count('class="scene"') == 1
    words = re.findall(r"<span>(\w+)</span>", page.shown())
    assert " ".join(words) == "across a large yellow square left of a small"
    assert "unmask_images" not in {one.proto.component_name for one in page.app.get("bidi_component")}
    page.press("answer_2")
    assert "80.3% of its attention on the image to patches of the small blue circle" in page.verdict()
    (one,) = [one for one in page.app.get("bidi_component") if one.proto.component_name == "unmask_images"]
    header, body = header_and_body(one.proto.bytes)
    assert header["caption"][header["word"]] == "small"
    planes = np.frombuffer(body, "<f4", count=3 * 10 * 36).reshape(3, 10, 36)
    model, scene = (
        captioner.load("prefix"),
        scene_of("white_square-yellow-large-12-36_triangle-red-large-36-26_circle-blue-small-26-12"),
    )
    run = model.run(captioner.encode(render([scene]), "across", header["caption"][1:]))
    np.testing.assert_allclose(planes[0, :9], run.weights(2, 2)[36:, :36], atol=1e-6)


def test_a_lesson_ends_with_its_summary_the_answers_and_the_next_lesson() -> None:
    page = Lessons(lesson="why_training", step="3").press("answer_2")
    assert "That is right." in page.verdict()
    answer = page.verdict().rpartition("  ")[2]
    page.press("next").press("next")
    assert "A low training loss means something only if the model could not see the answer." in page.shown()
    lines = re.findall(r'<li class="(\w+)"><b>(.*?)</b><div>(.*?)</div></li>', page.shown())
    assert [(kind, answer in line) for kind, _, line in lines] == [
        ("open", False), ("open", False), ("right", True), ("open", False),
    ]  # fmt: skip
    assert "1 of 1 answer correct." in page.shown()
    page.press("next")
    assert page.app.query_params["lesson"] == "attention_sinks"


def test_after_the_last_lesson_comes_the_list_of_all() -> None:
    page = Lessons(lesson="serving_masks", step="8")
    assert page.app.button(key="next").label == "All lessons"
    page.press("next")
    assert "lesson" not in page.app.query_params
    assert len([one for one in page.app.markdown if one.value.startswith("#### ")]) == 12


def test_a_step_that_cannot_run_leaves_the_others_on_the_last_screen() -> None:
    wrong = OWN + "\n## Wrong\n\n```run\nhead: L9 H0\nask: sees\n```\n"
    page = Lessons(packed=packed(wrong), step="3")
    lines = re.findall(r'<li class="(\w+)"><b>(.*?)</b><div>(.*?)</div></li>', page.shown())
    assert [kind for kind, _, _ in lines] == ["open", "open"]
    assert lines[1][2] == "line 20: expected a layer of story from 0 to 5, got 9."


def test_a_number_is_typed_and_what_is_near_enough_is_right() -> None:
    page = Lessons(lesson="mask_on_a_score", step="2")
    assert not page.choices()
    page.typed("0.5")
    assert "Not quite. The answer is: 0.73" in page.verdict()
    assert "Your answer" not in page.verdict()
    assert page.app.query_params["answers"] == "2-8"
    page = Lessons(lesson="mask_on_a_score", step="2")
    for nothing in ("abc", "nan", "1/3"):
        page.typed(nothing)
        assert ([one.value for one in page.app.toast], page.verdict()) == (["Type a number."], "")
    page.typed("0，75")
    assert "That is right. The answer is: 0.73; up to 0.03 away counts." in page.verdict()
    assert "Your answer" not in page.verdict()
    page = Lessons(lesson="mask_on_a_score", step="2", present="true")
    assert len(page.choices()) == 4  # a class votes for a choice
    assert "away counts" not in page.press("answer_3").verdict()


def test_a_row_of_four_tokens_shows_its_stages_and_follows_what_is_changed() -> None:
    page = Lessons(lesson="mask_on_a_score", step="6")
    assert ">weight<" not in page.shown()
    page.press("answer_3")
    assert page.shown().count(">NaN<") == 5  # four weights and their sum
    (then,) = [one for one in page.app.selectbox if one.key.endswith("_then")]
    then.set_value("zero").run()
    assert "NaN" not in page.shown().partition("<table")[2].partition("</table>")[0]
    for number, same in zip([one for one in page.app.number_input if "_q" in one.key], (1.006, 1.01), strict=True):
        number.set_value(same)
    shown = page.run().shown()
    assert shown == page.set(**{page.app.number_input[0].key: 1.01}).shown(), "computed as it is shown"


def test_a_slider_goes_through_the_training() -> None:
    page = Lessons(lesson="induction_head", step="4").press("answer_0")
    assert "Step 375: loss" in page.shown()
    page.set(lesson_training_4=700)
    assert "Step 700: loss" in page.shown()
    assert "L0 H6 of induction-700" in page.shown()


def test_a_step_opens_the_page_that_shows_the_same() -> None:
    page = Lessons(lesson="text_to_next_token")
    links = [one.proto for one in page.app.get("page_link") if "Open this" in one.proto.label]
    assert [one.label for one in links] == ["Open this on the page Explore"]
    assert "silver" in links[0].query_string


@pytest.mark.parametrize(
    ("query", "script", "shown"),
    [
        (
            {"lesson": "serving_masks", "step": "1", "answers": "1-0"},
            "pages/serving.py",
            {"serving": "packing", "separator": "."},
        ),
        (
            {"lesson": "serving_masks", "step": "6", "answers": "6-0"},
            "pages/serving.py",
            {"cached": 7, "second": " The dog sat down."},
        ),
        (
            {"packed": packed(OWN.replace("ask: sees", 'masks: {"causal": false}\npage: explore'))},
            "app.py",
            {"causal": False, "text": "one two three"},
        ),
    ],
)
def test_a_step_opens_its_section_under_its_masks(query: dict[str, str], script: str, shown: dict[str, object]) -> None:
    page = Lessons(**query)
    links = [one.proto.query_string for one in page.app.get("page_link") if "Open this" in one.proto.label]
    for address in ("", links[0]):  # from the sidebar first, which gives the page choices of its own
        page.go("pages/lessons.py").app.query_params.clear()
        page.app.query_params.update(parse_qsl(address))
        page.go(script)
    assert {name: page.app.session_state[name] for name in shown} == shown


def test_the_list_of_lessons_says_which_builds_on_which() -> None:
    shown = Lessons().shown()
    assert "<b>4</b> What the mask does to a score <small>after 3</small>" in shown
    assert "<b>6</b> Both masks at once <small>after 3 and 5</small>" in shown


def test_the_loss_axis_of_tiny_losses_counts_in_nats() -> None:
    page = Lessons(lesson="why_training", step="3")
    (chart,) = charts(page.app).values()
    heights = chart["figure"]["layout"]["yaxis"]
    assert heights["autorangeoptions"] == {"include": 0.1}
    assert heights["exponentformat"] == "none"


def test_the_losses_of_two_models_bear_their_names_and_of_one_model_twice_which_run_it_is() -> None:
    for step, names in (("1", {"The model trained without the mask", "The model trained with the mask"}),
                        ("3", {"now", "before"})):  # fmt: skip
        page = Lessons(lesson="why_training", step=step).press("answer_0")
        (chart,) = charts(page.app).values()
        assert {curve["name"] for curve in chart["figure"]["data"]} == names


def test_alternative_texts_name_the_run_that_is_compared_with() -> None:
    for lesson, step, alt in (
        ("why_training", 3, r"Mean loss in nats/token: 16\.78 \(now\), 0\.00 \(before\)\."),
        ("attention_sinks", 5, r"Mean loss of each text, in nats/token\. Their mean is .* \(before\)\."),
        ("causal_mask", 5, r".* Beside it: the run that it is compared with, and the difference\."),
    ):
        page = Lessons(lesson=lesson, step=str(step), answers=f"{step}-0")
        (chart,) = charts(page.app).values()
        assert re.fullmatch(alt, chart["alt"])


def test_asking_can_be_switched_off_and_the_language_changed() -> None:
    page = Lessons(lesson="padding", step="2", lang="zh")
    assert page.choices() == ["因果掩码 + 填充掩码", "因果掩码", "填充掩码", "没有掩码"]
    page.set(lesson_asks=False)
    assert "正确答案：因果掩码" in page.verdict()


def test_a_lesson_in_the_link_is_read_and_shown_as_text() -> None:
    page = Lessons(packed=packed(OWN))
    assert r"#### A \<b\>step\</b\>" in [one.value for one in page.app.markdown]
    assert "<script>alert" not in page.shown()
    assert "&lt;script&gt;" in page.shown()
    assert page.choices() == ["2", "3", "4"]
    page.app.query_params.clear()
    page.app.query_params["lesson"] = "padding"  # as the sidebar's link does
    assert "#### Rows of one length" in [one.value for one in page.run().app.markdown]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"lesson": "no_such"}, "There is no lesson named “no_such” here"),
        ({"packed": "AAAA"}, "expected a whole lesson in the link"),
        ({"packed": packed(OWN.replace("minutes: 1", "minutes: x"))}, "line 4: expected minutes"),
        (
            {"packed": packed(OWN.replace("query: 2", "head: L9 H0"))},
            "line 11: expected a layer of story from 0 to 5, got 9",
        ),
        ({"packed": packed(OWN.replace("query: 2", "row: 2"))}, "line 11: expected a row from 1 to 1, got 2"),
        ({"packed": packed(OWN.replace("query: 2", "query: 99"))}, "line 11: expected a query from 0 to 3, got 99"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(query: dict[str, str], text: str) -> None:
    page = Lessons(**query)
    (error,) = [box.value.replace("\\", "") for box in page.app.error]
    assert text in error


def test_a_link_holds_a_whole_lesson_and_no_bomb() -> None:
    assert unpacked(packed(OWN)) == OWN
    assert packed("".join(chr(0x4E00 + index) for index in range(9_000))) == ""
    bomb = packed("a" * 1_000_001)
    assert bomb
    with pytest.raises(ValueError, match="a whole lesson"):
        unpacked(bomb)


def test_a_folder_of_lessons_comes_after_those_that_ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.en.md").write_text(OWN, encoding="utf-8")
    (tmp_path / "wrong.en.md").write_text("---\ntitle: x", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no lesson", encoding="utf-8")
    monkeypatch.setenv("UNMASK_LESSONS", str(tmp_path))
    page = Lessons()
    titles = [one.value for one in page.app.markdown if one.value.startswith("#### ")]
    assert len(titles) == 13
    assert titles[12] == "#### 13 · Mine"
    assert ["wrong.en.md, line 2: expected a second ---" in box.value for box in page.app.warning] == [True]
    page.press("open_mine")
    assert page.choices() == ["2", "3", "4"]
    assert page.press("Edit a copy of this lesson")["lesson_draft"] == OWN


@pytest.fixture
def to_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every model outside the catalog a download of 548 MB that is inspected in this process."""
    monkeypatch.setattr(models, "inspected", lambda function, name: function(name))
    monkeypatch.setattr(catalog, "download_size", lambda _: 548 * 10**6)


@pytest.mark.usefixtures("to_download")
def test_a_lesson_asks_before_it_downloads_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(name: str, *_: object) -> Path:
        fetched.append(name)
        raise OSError("the test has no files")

    monkeypatch.setattr(catalog, "fetch", fetch)
    page = Lessons(packed=packed(OWN.replace("query: 2", "query: 2\nmodel: some/other")))
    assert not fetched
    assert "some/other is not on this machine: 548 MB would be downloaded" in page.app.info[0].value
    page.press("download_another")
    assert fetched == ["some/other"]
    assert page.app.error[0].value == "the test has no files."


@pytest.mark.usefixtures("to_download")
def test_a_lesson_downloads_nothing_that_the_disk_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    page = Lessons(packed=packed(OWN.replace("query: 2", "query: 2\nmodel: some/other")))
    assert "0.5 GB to download, and the disk has 1.0 GB free" in page.app.error[0].value
