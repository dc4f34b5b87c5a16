"""The Lessons page of a teacher with a room, without a browser."""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from time import time
from typing import Any

import pytest
import streamlit as st

from lessons.reading import FOLDER, shelf
from serving import rooms
from serving.rooms import MemoryHashes, RoomKey, Rooms
from tests.pages.page import Page
from ui.lessons import choices, classroom
from viz.why_causal.charts import Curve

PHONES = [f"phone{number:0>20}" for number in range(5)]


class Lessons(Page):
    SCRIPT = "pages/lessons.py"


class Teacher(Lessons):
    """A teacher's page with an open room and phones in it."""

    def __init__(self, **query: str) -> None:
        super().__init__(**query)
        self.press("teach")
        for phone in PHONES:
            assert rooms.rooms().register_phone(self.key.id, phone)

    @property
    def key(self) -> RoomKey:
        key: RoomKey = self["lesson_room"]
        return key

    def phone(self) -> dict[str, Any]:
        """Return what phones are sent."""
        shown = rooms.rooms().shown(self.key.id)
        return {"choices": shown.choices, "version": shown.version} | json.loads(gzip.decompress(shown.body))

    def strip(self) -> str:
        return next(html for html in self.html() if html.startswith('<p role="status">'))


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fresh = Rooms(MemoryHashes())
    monkeypatch.setattr(rooms, "rooms", lambda: fresh)
    rooms.served.set()
    yield
    rooms.served.clear()


def test_without_a_server_the_button_says_how_to_start_one() -> None:
    rooms.served.clear()
    page = Lessons(lesson="causal_mask").press("teach")
    assert "streamlit run serve.py" in page.app.info[0].value
    assert "lesson_room" not in page.app.session_state


@pytest.mark.parametrize(("address", "warned"), [("http://0.0.0.0:8501", True), ("http://192.168.0.9:8501", False)])
def test_an_address_that_no_phone_can_open_is_said(monkeypatch: pytest.MonkeyPatch, address: str, warned: bool) -> None:
    monkeypatch.setattr(type(st.context), "url", f"{address}/lessons?lesson=causal_mask")
    page = Teacher(lesson="causal_mask")
    assert f"{address}/room/{page.key.id}" in [one.value for one in page.app.code]
    assert ["Network URL" in one.value for one in page.app.warning] == [True] * warned


def test_the_code_of_a_session_that_was_ended_elsewhere_is_closed() -> None:
    page = Teacher(lesson="causal_mask")
    rooms.rooms().close(page.key)
    page.run()
    assert page.app.toast
    assert (len(page.app.code), len(page.app.info)) == (0, 0)


def test_a_session_on_a_full_server_is_kept_while_its_teacher_s_page_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MAX_ROOMS", 1)
    page, begin = Lessons(lesson="causal_mask").press("teach"), time()
    monkeypatch.setattr(rooms, "time", lambda: begin + rooms.UNUSED + 60)
    page.run()
    with pytest.raises(ValueError, match="All 1 class sessions"):
        rooms.rooms().open()
    monkeypatch.setattr(rooms, "time", lambda: begin + 2 * rooms.UNUSED + 120)
    rooms.rooms().open()
    assert page.run().boxes("info") == []
    assert [one.value for one in page.app.toast] == [f"{rooms.GONE}"]


def test_a_qr_code_that_is_left_does_not_come_again() -> None:
    page = Teacher(lesson="causal_mask")
    assert "/room/" in page.app.code[0].value
    page.run()
    assert page.app.code, "another run of the page leaves it open"
    page.app.session_state["page"] = "Explore"  # the teacher opened another page meanwhile
    page.run()
    assert not page.app.code
    assert page.press("teach").app.code


def test_phones_follow_the_teacher_and_see_the_answers_after_the_reveal() -> None:
    page = Teacher(lesson="causal_mask")
    first = page.phone()
    assert (first["choices"], "said" in first, "Only backwards" in first["html"]) == (4, False, True)
    assert page.run().phone()["version"] == first["version"]  # not made again
    for phone, choice in zip(PHONES, (1, 1, 0, 3, 1), strict=True):
        assert rooms.rooms().answer(page.key.id, phone, first["name"], choice) == choice
    assert "5 phones · 5 answered" in page.run().strip()
    page.press("reveal")
    shown = page.phone()
    assert (shown["choices"], "That is right" in shown["said"][1], shown["name"]) == (0, True, first["name"])
    assert "width:60%" in shown["html"]
    assert "✓" in page.strip()
    page.press("next")
    assert "Turn it off" in page.phone()["html"]
    assert page.phone()["choices"] == 4
    lines = list(csv.DictReader(io.StringIO(classroom._csv(page.key).removeprefix("\ufeff"))))
    assert [(line["answer"], line["right"], line["count"], line["share"]) for line in lines[:4]] == [
        ("8", "no", "1", "0.200"), ("9", "yes", "3", "0.600"), ("10", "no", "0", "0.000"), ("19", "no", "1", "0.200"),
    ]  # fmt: skip
    assert [line["number"] for line in lines] == [*"11112222"], "of the steps, as they were shown"


def test_an_answer_that_comes_while_the_answers_are_counted_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phones, the teacher and the file would otherwise show different counts."""
    page, tally, late = Teacher(lesson="causal_mask"), Rooms.tally, []
    name = page.phone()["name"]
    assert rooms.rooms().answer(page.key.id, PHONES[0], name, 1) == 1

    def answered_meanwhile(*given: Any) -> Any:
        found = tally(*given)
        late.append(rooms.rooms().answer(page.key.id, PHONES[1], name, 1))
        return found

    page.run()
    monkeypatch.setattr(Rooms, "tally", answered_meanwhile)
    page.press("reveal")
    monkeypatch.setattr(Rooms, "tally", tally)
    assert set(late) == {None}
    assert "5 phones · 1 answered" in page.strip()
    assert rooms.rooms().tally(page.key.id).counts == {name: {1: 1}}
    assert "<b>1</b>" in page.phone()["html"]


def test_the_end_tells_phones_what_was_right_of_the_steps_that_were_revealed() -> None:
    page = Teacher(lesson="causal_mask").press("reveal")
    first = page.phone()["name"]
    page.press("next")  # asked, but not revealed
    page.app.query_params["step"] = "99"
    page.run()
    assert page.phone()["right"] == {first: [1]}
    page.app.query_params.clear()
    page.app.query_params["lesson"] = "padding"
    page.run()
    page.app.query_params["step"] = "99"
    assert page.run().phone()["right"] == {}, "another lesson's"


def test_the_last_screen_of_a_class_has_no_answers_of_the_teacher_alone() -> None:
    alone = Lessons(lesson="causal_mask", step="6")
    for page, there in ((alone, True), (Teacher(lesson="causal_mask", step="6"), False)):
        assert ("#### Your answers" in [one.value for one in page.app.markdown]) is there
        assert any("Not answered yet." in html for html in page.html()) is there
        assert "#### Summary" in [one.value for one in page.app.markdown]


def test_a_step_that_could_not_be_sent_once_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    page, tally, failed = Teacher(lesson="causal_mask"), Rooms.tally, []

    def fail_once(*given: Any) -> Any:
        if not failed:
            failed.append(1)
            raise OSError(rooms.UNREACHABLE)
        return tally(*given)

    monkeypatch.setattr(Rooms, "tally", fail_once)
    assert "said" not in page.press("reveal").phone()
    assert failed
    assert "said" in page.run().phone()


def test_a_question_whose_answer_could_not_be_sent_can_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    page, tally = Teacher(lesson="causal_mask"), Rooms.tally

    def fail(*_: Any) -> Any:
        raise OSError(rooms.UNREACHABLE)

    monkeypatch.setattr(Rooms, "tally", fail)
    assert page.press("reveal").phone()["choices"] == 0
    monkeypatch.setattr(Rooms, "tally", tally)
    page.press("lesson_forget_all")
    assert page.phone()["choices"] == 4


def test_a_link_to_a_step_before_the_first_teaches_the_first() -> None:
    page = Teacher(lesson="causal_mask", step="0")
    assert "Only backwards" in page.phone()["html"]
    assert page.app.button(key="previous").disabled


def test_a_class_is_asked_what_its_teacher_has_answered_at_home() -> None:
    page = Lessons(lesson="causal_mask").press("answer_1").press("teach")
    assert rooms.rooms().shown(page["lesson_room"].id).choices == 4


def test_before_the_reveal_a_screen_that_the_class_sees_has_no_bars() -> None:
    page = Teacher(lesson="causal_mask", present="true")
    assert "0 answered" in page.strip()
    assert "bars" not in page.strip()
    assert "bars" in page.press("reveal").strip()


def test_every_kind_of_picture_is_sent_with_its_question_before_and_after_and_the_end() -> None:
    seen: set[str] = set()
    for shelved in shelf(FOLDER, "en"):
        for number, step in enumerate(shelved.lesson.steps, 1):
            if step.show in seen:
                continue
            seen.add(step.show)
            page = Teacher(lesson=shelved.name, step=str(number))
            asking = page.phone()
            assert (asking["choices"] > 0, "data-choice" in asking["html"]) == (step.ask is not None,) * 2
            page.app.session_state["lesson_asks"] = False
            sent = page.run().phone()
            assert sent["choices"] == 0
            assert classroom.say(classroom.ELSEWHERE) not in sent["html"], f"no picture of {step.show}"
            rooms.rooms().close(page.key)
    page = Teacher(lesson="causal_mask", step="99")
    assert "Summary" in page.phone()["html"]


def test_a_room_that_has_ended_is_told_and_forgotten() -> None:
    page = Teacher(lesson="causal_mask")
    rooms.rooms().close(page.key)
    page.run()
    assert page["lesson_room"] is None
    assert "has ended" in page.app.toast[0].value
    assert page.app.button(key="teach").label == "Teach"
    assert not any('role="status"' in html for html in page.html())


def test_a_room_that_could_not_be_ended_stays_and_a_sentence_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Teacher(lesson="causal_mask")

    def fail(*_: Any) -> None:
        raise OSError(rooms.UNREACHABLE)

    monkeypatch.setattr(Rooms, "close", fail)
    page.app.session_state["lesson_room_joined"] = True  # keeps the dialog open, which a run without a browser closes
    page.run().app.session_state["lesson_room_joined"] = True
    page.press("room_end")
    assert [one.value for one in page.app.error] == [f"{rooms.UNREACHABLE}"]
    assert rooms.rooms().is_open(page.key)


class State(dict):  # type: ignore[type-arg]
    """A stand-in for st.session_state outside a page."""

    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


def test_a_question_that_a_full_session_cannot_count_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MAX_STEPS", 1)
    teacher = Teacher(lesson="causal_mask")
    full = "Phones cannot answer: a class session has at most 1 questions. End it and start a new one."
    assert full not in teacher.strip()
    teacher.app.session_state["lesson_step"] = 2
    teacher.run()
    assert full in teacher.strip()
    assert teacher.phone()["name"].endswith("-2"), "phones follow all the same"


def test_answers_stay_when_another_lesson_was_looked_at() -> None:
    page = Lessons(lesson="causal_mask").press("answer_1")
    for lesson in ("padding", "causal_mask"):
        page.app.query_params.clear()
        page.app.query_params["lesson"] = lesson  # as the sidebar's links do
        page.run()
    assert page["lesson_answers"] == {("causal_mask", 1): 1}


def test_a_training_reaches_the_phones_now_and_then_and_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Teacher(lesson="causal_mask")
    monkeypatch.setattr(st, "session_state", State(lesson_room=page.key))

    def look(steps: list[int], *, over: bool) -> dict[str, Any]:
        classroom.show_curves([Curve("1: with", steps, [2.0] * len(steps), True)], 100, over=over)
        return page.phone()

    first = look([0, 10], over=False)
    assert 'points="0,0 60,0"' in first["html"]
    assert look([0, 10, 20], over=False) == first  # too soon for an update
    assert 'points="0,0 60,0 120,0"' in look([0, 10, 20], over=True)["html"]


def test_what_a_browser_remembers_is_checked_and_added(monkeypatch: pytest.MonkeyPatch) -> None:
    key = rooms.rooms().open()
    state = State(lesson_answers={("causal_mask", 1): 1})
    monkeypatch.setattr(st, "session_state", state)
    for sent in (None, 7, "[", "[]", '{"answers": 3}', "[" * 90_000, json.dumps({"answers": {}, "room": {"id": 1}})):
        choices._take(sent)
        assert "lesson_room" not in state
    answers = {"causal_mask": "1-0,2-3", "padding": "1-2", "<b>": "1-1", "own x": "zzz"}
    choices._take(json.dumps({"answers": answers, "room": {"id": key.id, "secret": "another"}}))
    assert state.lesson_answers == {("causal_mask", 1): 1, ("causal_mask", 2): 3, ("padding", 1): 2}
    assert not rooms.rooms().is_open(state.pop("lesson_room")), "its button says so, and drops it"
    choices._take(json.dumps({"room": {"id": key.id, "secret": key.secret}}))
    assert state.lesson_room == key
    assert choices.answers_by_lesson() == {"causal_mask": "1-1,2-3", "padding": "1-2"}
    choices._forget()
    assert choices.answers_by_lesson() == {}


def test_what_a_browser_remembers_is_bounded_over_all_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State()
    monkeypatch.setattr(st, "session_state", state)
    thirty = ",".join(f"{step}-1" for step in range(10, 40))
    for number in range(3):
        choices._take(json.dumps({"answers": {f"{number} {lesson}": thirty for lesson in range(240)}}))
    answers = list(state.lesson_answers)
    assert len(answers) == choices.MAX_ANSWERS
    assert answers[-1] == ("2 239", 39), "the latest"


def test_phones_call_two_models_by_their_names() -> None:
    """Neither model precedes the other, so none of them is called “before”."""
    teacher = Teacher(lesson="why_training").press("reveal")
    shown = str(teacher.phone())
    assert "The model trained with the mask" in shown
    assert "The model trained without the mask" in shown
    assert ">before<" not in shown
    teacher = Teacher(lesson="causal_mask", step="3").press("reveal")
    assert ">before<" in str(teacher.phone())
