"""A classroom's room over several lessons, tabs and reloads, and what phones get for steps that they cannot show."""

import pytest

from serving import rooms
from tests.pages.test_classroom import Lessons, Teacher
from tests.pages.test_classroom import served as served
from tests.pages.test_lesson_editor import OWN
from ui.lessons import shelves


def open_lesson(page: Lessons, lesson: str) -> None:
    """Open a lesson as the sidebar's links do."""
    page.app.query_params.clear()
    page.app.query_params["lesson"] = lesson
    page.run()


def test_every_lesson_of_a_room_asks_its_class_whatever_was_rehearsed() -> None:
    teacher = Teacher(lesson="causal_mask")
    rooms.rooms().close(teacher.key)
    teacher.run()
    for lesson in ("padding", "causal_mask"):
        open_lesson(teacher, lesson)
        teacher.press("answer_1")
    teacher.press("teach")
    assert teacher.phone()["choices"] == 4
    teacher.press("answer_1")
    open_lesson(teacher, "padding")
    assert teacher.phone()["choices"] > 0
    assert "answer_1" in [one.key for one in teacher.app.button]
    assert teacher["lesson_anew"][-2:] == ["causal_mask", "padding"], "the browser forgets them too"
    teacher.press("answer_1")
    assert teacher.phone()["choices"] == 0
    open_lesson(teacher, "causal_mask")
    assert teacher.phone()["choices"] == 0, "what was answered in this room stays"
    again = Lessons()  # a reload: the browser sends the room and the answers
    again.app.session_state["lesson_room"] = teacher.key
    again.app.session_state["lesson_answers"] = {("padding", 1): 1, ("both_masks", 1): 1}
    open_lesson(again, "padding")
    assert again["lesson_answers"] == {("padding", 1): 1, ("both_masks", 1): 1}
    open_lesson(again, "both_masks")
    assert again["lesson_answers"] == {("padding", 1): 1}


def test_a_room_that_has_ended_makes_nobody_forget_answers() -> None:
    page = Lessons(lesson="causal_mask").press("answer_1")
    page.app.session_state["lesson_room"] = rooms.RoomKey("A" * 22, "of yesterday")
    page.run()
    assert page["lesson_answers"] == {("causal_mask", 1): 1}


@pytest.mark.parametrize("query", [{}, {"lesson": "causal_mask"}])
def test_a_room_that_has_ended_is_forgotten_at_once(query: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = Lessons(**query)
    page.app.session_state["lesson_room"] = rooms.RoomKey("A" * 22, "of yesterday")
    looks: list[None] = []
    whole = shelves.shelved
    monkeypatch.setattr(shelves, "shelved", lambda: looks.append(None) or whole())
    page.run()
    assert len(looks) == 1, "the page runs once"
    assert page["lesson_room"] is None
    assert [one.value for one in page.app.toast] == ["This class session has ended. Start a new one."]


@pytest.mark.parametrize("forget", ["lesson_forget_all", "teach"])
def test_answers_that_were_forgotten_do_not_come_back_with_an_earlier_address(forget: str) -> None:
    before = Lessons(lesson="causal_mask").press("answer_1").url
    assert before["answers"] == "1-1"
    page = Lessons(**before).press(forget)
    assert page["lesson_answers"] == {}
    page.app.query_params.update(before)
    assert page.run()["lesson_answers"] == {}


def test_phones_that_show_another_step_are_told_of_and_brought_back() -> None:
    teacher = Teacher(lesson="causal_mask")
    assert "another step" not in teacher.strip()
    other = Lessons()  # a second tab
    other.app.session_state["lesson_room"] = teacher.key
    open_lesson(other, "what_attention_is")
    assert "Only backwards" not in teacher.phone()["html"]
    assert "Phones show another step." in teacher.run().strip()
    teacher.press("lesson_room_here")
    assert "Only backwards" in teacher.phone()["html"]
    assert "another step" not in teacher.strip()


def test_from_the_list_of_lessons_a_class_is_seen_and_can_be_ended() -> None:
    teacher = Teacher(lesson="serving_masks", step="99").press("next")
    assert "### Lessons" in teacher.boxes("markdown")
    assert teacher.strip() == '<p role="status">5 phones</p>'
    teacher.press("teach").press("room_end")
    assert teacher["lesson_room"] is None
    assert not any('role="status"' in html for html in teacher.html())
    assert "teach" not in [one.key for one in teacher.app.button], "no lesson is open"


def test_a_picture_too_large_for_phones_leaves_no_question_open(monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = Teacher(lesson="causal_mask", step="2")
    monkeypatch.setattr(rooms, "MAX_BYTES", 7_000)
    shown = teacher.press("reveal").phone()
    assert (shown["choices"], "said" in shown, "The picture is on the teacher" in shown["html"]) == (0, True, True)
    assert "they show the step without it" in teacher.app.toast[0].value


def test_a_step_that_cannot_be_drawn_is_said_to_be_on_the_teachers_screen() -> None:
    teacher = Teacher(lesson="causal_mask")
    teacher.app.session_state["lesson_own"] = OWN.replace("query: 2", "query: 99")
    teacher.run()
    assert "expected a query" in teacher.app.error[0].value
    shown = teacher.phone()
    assert (shown["choices"], "This step is on the teacher" in shown["html"]) == (0, True)
    teacher.app.session_state["lesson_own"] = OWN
    assert teacher.run().phone()["choices"] > 0


def test_a_training_is_sent_at_the_checkpoint_that_the_teacher_chose() -> None:
    teacher = Teacher(lesson="induction_head", step="4")
    teacher.app.session_state["lesson_asks"] = False
    assert "Step 375: loss" in teacher.run().phone()["html"]
    slider = next(one for one in teacher.app.select_slider if one.label == "Training step")
    slider.set_value(slider.options[0])
    assert "Step 375: loss" not in teacher.run().phone()["html"]
    assert "Step 0: loss" in teacher.phone()["html"]
