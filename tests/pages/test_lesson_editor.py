"""The lesson editor without a browser: what it reports about a lesson's source, and what can be done with it."""

import json
import re
from typing import Any

import pytest

from tests.pages.page import Page
from ui.controls import OWN_TEXT
from ui.lessons import editor

OWN = """---
title: Mine
aim: To see it.
minutes: 1
text: once upon a time
---

## One

```run
query: 2
ask: sees
```

## Two

```run
```

Words.
"""


class Lessons(Page):
    SCRIPT = "pages/lessons.py"


def test_the_editor_runs_every_step_and_says_every_mistake_with_its_line() -> None:
    page = Lessons(edit="true")
    assert problems(page) == ([], "2 steps run, no mistakes.")
    assert "#### Your first step" in [one.value for one in page.app.markdown]
    for change, starts in (
        (("minutes: 1", "minutes: x"), ["line 4: expected minutes"]),
        (("query: 2", "query: 9"), ["line 11: expected a query from 0 to 5, got 9"]),
        (("minutes: 1\n", ""), ["line 2: expected minutes, a whole number from 1 to 240, got nothing there"]),
        (("ask: sees", "ask: padding\nshow: nothing\nhead: L9 H0"), ["line 13: expected show"]),
        (("ask: sees", "show: training"), ["line 12: expected model: induction, which show: training needs, got s"]),
        (("ask: sees", 'masks: {"layers": [9]}'), ["line 12: layers: expected numbers from 0 to 5"]),
        (("ask: sees", 'beside: {masks: {"layers": [9]}}'), ["line 12: layers: expected numbers from 0 to 5"]),
        (("ask: sees", "model: dates\nattention: cross\nshow: embedding"), ["line 14: dates: the states after each"]),
    ):
        page.app.session_state["lesson_draft"] = OWN.replace(*change)
        found, _ = problems(page.run())
        assert [one[: len(start)] for (_, one), start in zip(found, starts, strict=True)] == starts
        assert [line for line, _ in found] == [int(one.split()[1].rstrip(":")) for one in starts]
    page.app.session_state["lesson_draft"] = OWN
    assert problems(page.run()) == ([], "2 steps run, no mistakes.")
    page.app.session_state["lesson_draft"] = OWN.replace("query: 2", "model: unknown_model\nquery: 2", 1)
    counted = "1 step runs, no mistakes. Not run, as the model is not loaded: unknown_model."
    assert problems(page.run()) == ([], counted)
    page.app.session_state["lesson_draft"] = OWN
    page.run()
    page.app.session_state["lesson_draft"] = OWN.replace("query: 2", "head: L9 H0", 1)
    page.run()
    page.app.session_state["lesson_draft"] = OWN.replace("query: 2", "head: foo", 1)
    assert problems(page.run())[0]
    assert not page.app.error, "the preview is of a version without mistakes"
    page.app.session_state["lesson_draft"] = OWN
    page.run()
    assert page.url["edit"] == "true"
    assert "One" in " ".join(one.value for one in Lessons(**page.url).app.markdown)  # the link holds the source
    page.press("lesson_use")
    assert (page["lesson_edit"], page["lesson_own"]) == (False, OWN)
    page.press("lesson_editor")
    assert page["lesson_draft"] == OWN


def with_model(name: str) -> dict[int, str]:
    """Return drafts by the number of the line that names the model."""
    return {5: OWN.replace("text:", f"model: {name}\ntext:"), 11: OWN.replace("query: 2", f"beside: {{model: {name}}}")}


@pytest.mark.parametrize("name", ["gpt2", "no/such-model", "../../etc"])
def test_a_model_that_is_not_offered_is_a_mistake_that_names_what_lessons_have(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("UNMASK_MODELS", "story")
    page, listed = Lessons(edit="true"), set()
    for line, draft in with_model(name).items():
        page.app.session_state["lesson_draft"] = draft
        ((at, problem),), fine = problems(page.run())
        assert (at, problem.partition(" Choose one of ")[0]) == (line, f"line {line}: {name} is not available here.")
        assert "Not run" not in fine
        assert page.boxes("error") == [f"{problem}."], "the preview says the same"
        listed.add(problem.partition(" Choose one of ")[2])
    for name in listed.pop().split(", "):
        page.app.session_state["lesson_draft"] = with_model(name)[5]
        assert "available" not in str(problems(page.run()))
        assert "not loaded" not in problems(page)[1]


@pytest.mark.parametrize(("name", "error"), [("/no/such/folder", "is not a folder"), ("no such!", "neither a folder")])
def test_a_name_that_no_model_can_have_is_a_mistake(name: str, error: str) -> None:
    page = Lessons(edit="true")
    for line, draft in with_model(name).items():
        page.app.session_state["lesson_draft"] = draft
        ((at, problem),), _ = problems(page.run())
        assert at == line
        assert error in problem
    page.app.session_state["lesson_draft"] = with_model("some/model")[5]
    assert problems(page.run()) == ([], "Not run, as the model is not loaded: some/model.")


def test_a_draft_that_no_link_holds_is_said_to_be_lost_by_a_reload() -> None:
    page = Lessons(edit="true")
    assert "The link contains the whole lesson." in page.run().boxes("caption")
    assert "lesson_editor" not in [one.key for one in page.app.button], "no press replaces what is written"
    page.app.session_state["lesson_draft"] = OWN + "".join(chr(0x4E00 + index) for index in range(9_000))
    (caption,) = [one for one in page.run().boxes("caption") if "A reload loses it: save it" in one]
    assert not re.search(r"\d", caption), "the limit is one of the packed text, not of the source's length"


def test_a_template_replaces_what_was_written() -> None:
    page = Lessons(edit="true")
    page.set(lesson_template="mask_lab")
    assert "Mask Lab" in page["lesson_draft"]
    page.press("lesson_close")
    assert [one.value for one in page.app.markdown if one.value == "### Lessons"]


def test_what_is_written_goes_on_where_the_editor_is_opened_again() -> None:
    page = Lessons(edit="true")
    page.app.session_state["lesson_draft"] = OWN
    page.run().press("lesson_close").press("Write a lesson")
    assert (page["lesson_edit"], page["lesson_draft"]) == (True, OWN)
    page.press("lesson_close").press("open_padding").press("Edit a copy of this lesson")
    assert page["lesson_draft"] != OWN
    assert page.set(lesson_template=OWN_TEXT)["lesson_draft"] == OWN


def test_a_written_text_that_was_replaced_can_be_chosen_again() -> None:
    page = Lessons(edit="true")
    page.set(lesson_template="mask_lab").set(lesson_template="lessons")
    assert OWN_TEXT not in page.widget("lesson_template").options, "a template replaced a template"
    page.app.session_state["lesson_draft"] = OWN
    page.run().set(lesson_template="mask_lab").set(lesson_template="lessons")
    assert page.set(lesson_template=OWN_TEXT)["lesson_draft"] == OWN
    assert OWN_TEXT not in page.widget("lesson_template").options, "it is in the editor"
    page.app.file_uploader(key="lesson_file").upload("mine.md", b"a file", "text/markdown")
    assert page.run()["lesson_draft"] == "a file"
    assert page.set(lesson_template=OWN_TEXT)["lesson_draft"] == OWN
    assert OWN_TEXT not in page.widget("lesson_template").options, "a file that was not changed replaced it"
    linked = Lessons(**page.url).set(lesson_template="mask_lab")
    assert linked.set(lesson_template=OWN_TEXT)["lesson_draft"] == OWN, "a link's text is no template"


def test_a_source_that_no_version_could_be_read_of_has_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor, "_templates", lambda _: {"mask_lab": ("Broken", "no lesson"), "lessons": ("", OWN)})
    page = Lessons(edit="true")
    readable = "The last version that could be read:"
    page.app.session_state["lesson_draft"] = "no lesson"
    assert readable in page.run().boxes("caption")
    page.set(lesson_template="mask_lab")
    assert page["lesson_draft"] == "no lesson"
    assert readable not in page.boxes("caption")
    assert "The screen of each step appears here once the source can be read." in page.boxes("info")


def problems(page: Lessons) -> tuple[list[Any], str]:
    (sent,) = [
        one.proto for one in page.app.get("bidi_component") if one.proto.component_name == "unmask_lesson_editor"
    ]
    event = json.loads(sent.json)
    return event["problems"], event["fine"]
