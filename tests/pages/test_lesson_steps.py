"""A step of a lesson as it is first shown, also in a window as narrow as a phone's."""

import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from tests.pages.page import array
from tests.pages.test_lessons import Lessons
from ui.lessons.shelves import packed


def test_two_pictures_below_each_other_have_one_scale_of_colours_the_one_that_is_said() -> None:
    page = Lessons(lesson="causal_mask", step="2")
    page.app.session_state.lesson_width = 390
    page.press("reveal")
    ends = [page.trace(key, "weights")["zmax"] for key in ("lesson_figure", "lesson_figure_1")]
    (colour_key,) = [one for one in page.html() if 'class="key"' in one]
    assert ends[0] == pytest.approx(ends[1])
    assert f"{ends[0]:.2f}" in colour_key


def test_each_step_begins_with_its_own_step_of_the_training_and_its_own_numbers() -> None:
    page = Lessons(lesson="induction_head", step="4").press("reveal").set(lesson_training_4=1500)
    assert "Step 500: loss" in page.press("next").press("reveal").shown()
    page = Lessons(lesson="mask_on_a_score", step="3").press("reveal")
    own = page.shown()
    page.press("previous").press("reveal")
    page.set(**{next(one.key for one in page.app.number_input if one.key.endswith("q0")): -5.0})
    assert page.press("next").shown() == own


def test_losses_that_are_shown_before_the_answer_say_so() -> None:
    for step in ("3", "5"):  # losses of tokens, losses of texts
        (chart,) = Lessons(lesson="attention_sinks", step=step).figures().values()
        assert chart["layout"]["showlegend"]
        assert [curve["name"] for curve in chart["data"]] == ["before"]


@pytest.mark.parametrize("more", ["", "beside: {text: A dog ran home.}\n"])
def test_losses_of_one_run_are_its_own_and_bear_no_name(more: str) -> None:
    run = f"text: A king.\n{more}show: losses"
    own = f"---\ntitle: T\naim: A\nminutes: 1\n---\n\n## One\n\n```run\n{run}\n```\n\nWords.\n"
    (chart,) = Lessons(packed=packed(own)).figures().values()
    assert not chart["layout"]["showlegend"]
    (curve,) = chart["data"]
    assert [label.partition(": ")[2] for label in curve["x"]] == ["&lt;start&gt;", "A", "·king", "."]
    assert len(array(curve["y"])) == 4


@pytest.mark.parametrize(
    ("within", "label"), [("0", "A whole number"), ("1", "A number; up to 1 away counts as right")]
)
def test_what_is_typed_into_is_told_how_near_is_near_enough(within: str, label: str) -> None:
    run = "text: |\n  A king.\n  The cat sat.\n  A dog ran home.\nbeside: {masks: {causal: false}}\nshow: texts\n"
    run += f"ask: {{kind: how_many, within: {within}}}"
    own = f"---\ntitle: T\naim: A\nminutes: 1\n---\n\n## One\n\n```run\n{run}\n```\n\nWords.\n"
    assert Lessons(packed=packed(own)).app.text_input(key="typed_answer").label == label


def test_texts_are_compared_only_with_as_many() -> None:
    """Otherwise a curve of three texts would stand over the names of two."""
    run = "text: |\n  A king.\n  The cat sat.\nbeside:\n  text: |\n    A dog ran home.\n    She was sad.\n    He ran."
    own = f"---\ntitle: T\naim: A\nminutes: 1\n---\n\n## One\n\n```run\n{run}\nshow: texts\n```\n\nWords.\n"
    page = Lessons(packed=packed(own))
    (chart,) = page.figures().values()
    assert [len(trace["x"]) for trace in chart["data"]] == [2]


def test_the_rows_that_a_server_allows_readers_leave_a_lesson_s_text_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_ROWS", "4")
    page = Lessons(lesson="serving_masks", step="2").press("reveal")
    assert "of 11 texts" in page.verdict()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_keys_of_a_chunk_are_those_of_the_mask_that_is_shown(lang: str) -> None:
    """The lesson speaks of a rectangle of 4 queries and 10 keys."""
    text = Lessons(lesson="serving_masks", step="5", lang=lang).press("reveal").verdict()
    assert {"10", "7", "3"} <= {*re.findall(r"\d+", text)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("|\n  " + "\n  ".join(["The cat sat."] * 20), "expected at most 16 lines, got 20"),
        ("The cat sat. " * 100, "The model reads at most 256 tokens here: the last"),
    ],
)
def test_a_text_that_is_not_read_whole_is_a_mistake(text: str, message: str) -> None:
    own = "---\ntitle: T\naim: A\nminutes: 1\n---\n\n## One\n\n```run\nrow: 1\n{}\nask: sees\n```\n\nWords.\n"
    runs = f"text: {text}", "text: The cat sat.\nbeside:\n  text: " + text.replace("\n", "\n  ")
    for run, line in zip(runs, (11, 12), strict=True):
        page = Lessons(packed=packed(own.format(run)))
        (error,) = page.boxes("error")
        assert error.startswith(f"line {line}: {message}")


def test_a_lesson_of_a_folder_with_the_name_of_one_that_ships_is_not_left_out_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "---\ntitle: T\naim: A\nminutes: 1\n---\n\n## One\n\n```run\ntext: A king.\n```\n"
    (tmp_path / "padding.en.md").write_text(own)
    (tmp_path / "causal_mask.en.md").write_text("no lesson")
    monkeypatch.setenv("UNMASK_LESSONS", str(tmp_path))
    page = Lessons()
    wrong, taken = page.boxes("warning")
    assert "causal_mask.en.md, line 1: expected ---" in wrong
    assert "padding.en.md: expected a unique name" in taken
    assert len([one for one in page.app.markdown if one.value.startswith("#### ")]) == 12


def test_the_lessons_that_ship_are_there_where_a_server_s_own_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNMASK_LESSONS", str(tmp_path / "gone"))
    page = Lessons()
    assert page.boxes("warning") == ["This server's own lessons cannot be opened."]
    assert len([one for one in page.app.markdown if one.value.startswith("#### ")]) == 12
    assert not Lessons(lesson="padding").boxes("error")


@pytest.mark.parametrize(
    ("step", "model", "at", "head"),
    [
        ("1", "induction", 1500, (1, 0)),
        ("2", "induction", 0, (1, 0)),
        ("3", "induction", 1500, (0, 6)),
        ("6", "story", None, (4, 0)),
    ],
)
@pytest.mark.parametrize("offered", ["", "story,dates", "dates"])
def test_a_step_opens_its_own_model_and_head_on_a_server_or_has_no_link(
    step: str, model: str, at: int | None, head: tuple[int, int], offered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNMASK_SHARED", "true")
    monkeypatch.setenv("UNMASK_MODELS", offered)
    page = Lessons(lesson="induction_head", step=step).press("reveal")
    links = [one.proto.query_string for one in page.app.get("page_link") if "Open this" in one.proto.label]
    if offered and model not in offered:
        assert not links
        return
    page.app.query_params.clear()
    page.app.query_params.update(parse_qsl(links[0]))
    page.go("app.py")
    assert not page.boxes("warning")
    assert (page["model"], page["layer"], page["head"]) == (model, *head)
    sliders = [one.value for one in page.app.select_slider if one.key == "training_step"]
    assert sliders == ([] if at is None else [at])


@pytest.mark.parametrize("query", [{"lesson": "no_such"}, {"packed": "AAAA"}])
def test_after_a_lesson_that_is_not_there_the_list_is_offered(query: dict[str, str]) -> None:
    page = Lessons(**query)
    assert not page.url
    page.run()  # as on a phone, whose browser sends its width
    assert page.app.error
    page.press("open_padding")
    assert page.url == {"lesson": "padding"}
    assert not page.app.error


def test_next_goes_on_from_the_step_that_an_earlier_press_has_led_to() -> None:
    page = Lessons(lesson="causal_mask")
    page.app.session_state["lesson_step"] = 2  # by a press whose step is not drawn yet
    assert page.press("next")["lesson_step"] == 3
    page.app.session_state["lesson_step"] = 2
    assert page.press("previous")["lesson_step"] == 1
