"""Class sessions: phones follow the step on the teacher's screen and answer; the teacher sees the counts of answers.

Phones show a step's run as pictures that a small script draws, without Plotly's 5 MB.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Literal

import segno
import streamlit as st

from i18n import N_, language, say, say_count
from lessons.answer import mean_losses
from lessons.image_steps import rendered_scene
from lessons.lesson import Lesson, Step
from lessons.questions import ABOUT_A_QUERY, BEFORE_ANSWER, Answer
from model.heads.view import HeadView
from serving import rooms
from serving.job import digest
from serving.rooms import PhonePage, RoomKey
from ui import results
from ui.guard import guarded
from ui.heads import overview
from ui.lessons import choices, steps
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.streamlit_internals.selectors import css
from ui.widgets import deferred, download
from viz.export.data import cell, csv_text
from viz.head import head_range, with_shared_labels
from viz.heads.cells import changed, difference_packet, picture_packet
from viz.html import join, tag
from viz.lessons import phone, pictures
from viz.lessons.phone import Drawn, PhoneStep, losses_table
from viz.lessons.pictures import lit_picture, scene_image
from viz.lessons.screen import plain, question, run_names
from viz.saved.standalone import Canvas
from viz.why_causal.charts import Curve

POLL_SECONDS = 2.0  # seconds between two polls of the phones' answers
CURVE_EVERY = 2.0  # seconds between two updates of the curve of a running training
STRIP = 70  # pixels of the strip at the bottom of the window, with answers of two lines
ELSEWHERE = N_("The picture is on the teacher's screen.")
FULL = N_("Phones cannot answer: a class session has at most {most} questions. End it and start a new one.")
TOO_LARGE = N_("This picture is too large for phones: they show the step without it.")
LOCAL = ("localhost", "127.0.0.1", "0.0.0.0", "[::1]")
NO_SERVER = N_(
    "Phones can open this app only if it runs as a server: start it with `streamlit run serve.py --server.address "
    "0.0.0.0`, and open the Network URL that the terminal prints."
)
ONLY_HERE = N_(
    "Phones cannot open this address: on a phone it means the phone itself. Open this page by the address that this "
    "machine has in your network (the terminal's Network URL if it prints one); the QR code then changes too."
)
KEPT = N_(
    "The session ends after two hours. If another class needs its place, it also ends once this page and those of all "
    "phones have been closed, or asleep, for ten minutes. It keeps the answers that each phone gave, under a random "
    "number: no names, and no texts of the class."
)


def begin(name: str) -> None:
    """Delete the lesson's answers the first time that it is shown in a room, so that the class is asked every question,
    also those answered by its teacher in a rehearsal. Call before the lesson is drawn. name: the key of its answers."""
    key, begun = _key(), st.session_state.setdefault("lesson_room_begun", set())
    if key is None or (key.id, name) in begun:
        return
    with suppress(OSError):  # the strip shows it
        # in a session that began with a reload, the room still has what was asked
        asked = rooms.rooms().tally(key.id).asked
        if rooms.rooms().is_open(key) and not any(step.startswith(_step(name, "")) for step in asked):
            choices.reset_answers(name)
        begun.add((key.id, name))


def button() -> None:
    """Draw the button, in the row of the lesson's, that opens a room or shows how to join the open one."""
    _forget_ended()
    opened = is_open()
    label, icon = (say("Class session"), ":material/qr_code:") if opened else (say("Teach"), ":material/groups:")
    about = say("Teach this lesson: phones follow your steps and answer.")
    st.button(label, key="teach", icon=icon, help=None if opened else about, on_click=_open)
    if st.session_state.get("lesson_room_joined") == st.session_state.visit:  # until it is closed, or the page is left
        close = partial(st.session_state.pop, "lesson_room_joined", None)
        st.dialog(say("Teach this lesson"), width="medium", on_dismiss=close)(_invitation)()


def show(lesson: Lesson, name: str, number: int) -> None:
    """Send the step drawn, or the lesson's end, to the phones, and show the teacher their answers.

    name: the key of the lesson's answers. number: of the step, from 1.
    """
    key = _key()
    if key is None:
        return
    step, hidden = _step(name, number), st.session_state.lesson_asks and choices.given(name, number) is None
    answer = _publish(key, lesson, name, number, hidden=hidden)
    _show_strip(key, step, answer, not hidden)


def show_without_lesson() -> None:
    """Show the room while no lesson is open: phones keep what they have, and the session can be ended."""
    _forget_ended()  # the strip of an ended room would rerun the page endlessly
    if key := _key():
        _show_strip(key, "", None, revealed=False)
        button()


def show_failed(lesson: Lesson, name: str, number: int) -> None:
    """Send phones a page for a step that cannot be drawn, in place of the last step. Call before showing the error."""
    key, made = _key(), (_step(name, number), "failed", language())
    if key and _is_new(made):
        _send(key, made, PhonePage(made[0], 0, phone.failed_body(lesson, number, made[0])))


def is_open() -> bool:
    """Whether a class session is open on phones."""
    return _key() is not None


def strip_height() -> int:
    """Return the pixels at the bottom of the window that a picture leaves to the answers of the class."""
    return STRIP if is_open() else 0


def show_curves(lines: list[Curve], steps: int, *, over: bool) -> None:
    """Send a training's curves to the phones of this teacher's room, if any: every few seconds, and at the end."""
    key, state = _key(), st.session_state
    if key is None or not lines or (monotonic() < state.get("lesson_room_again", 0) and not over):
        return
    if _is_new(made := ("curves", len(lines), len(lines[-1].y))):
        _send(key, made, PhonePage("", 0, phone.curve_body(lines, steps)))
        state.lesson_room_again = monotonic() + CURVE_EVERY


def _forget_ended() -> None:
    """Remove a room that has ended from the session, and tell the teacher."""
    key = _key()
    with suppress(OSError):  # the strip shows it
        if key and not rooms.rooms().is_open(key):
            st.session_state.update(lesson_room=None, lesson_room_joined=None)
            st.toast(escaped(rooms.GONE))


def _key() -> RoomKey | None:
    return st.session_state.get("lesson_room")


def _step(name: str, number: int | Literal[""]) -> str:
    """Return a step's name in a room; without a number, the prefix of the names of all steps of the lesson."""
    return f"{digest(name).hex()[:8]}-{number}"


def _open() -> None:
    state = st.session_state
    state.update(lesson_room_joined=state.visit, lesson_room_problem=None)
    if _key() is None and rooms.served.is_set():
        try:
            state.lesson_room, state.lesson_room_shown = rooms.rooms().open(), None
        except (ValueError, OSError) as error:
            state.lesson_room_problem = error


def _publish(key: RoomKey, lesson: Lesson, name: str, number: int, *, hidden: bool) -> Answer | None:
    """Send the step to all phones, unless they have it. Returns the answer to its question."""
    step_name = _step(name, number)
    if number > len(lesson.steps):
        if _is_new(end := (step_name, language())):
            with guarded():
                right = _revealed(key, step_name)
                _send(key, end, PhonePage(step_name, 0, phone.end_body(lesson, step_name, right)))
        return None
    step = lesson.steps[number - 1]
    made = (step_name, hidden, language(), steps.checkpoint(step))
    with guarded(on_trouble=partial(show_failed, lesson, name, number)):
        now, compared = steps.pair(step)
        answer = steps.answered(step, now, compared) if step.ask else None
        if not _is_new(made):
            return answer
        picture = drawn(step, now, compared, hidden=hidden and answer is not None)
    counts = None
    if not hidden:
        st.session_state.lesson_room_shown = None  # if what follows fails, phones have a question without answers
        with guarded():
            rooms.rooms().close_answers(key)  # first: phones would show counts without answers that come later
            counts = rooms.rooms().tally(key.id).counts.get(step_name, {})
    sent = PhoneStep(lesson, number, step_name, answer, counts, picture)
    body = sent.body()
    if len(body) > rooms.MAX_BYTES:
        st.toast(say(TOO_LARGE))
        body = replace(sent, drawn=_elsewhere()).body()
    taken = len(answer.choices) if answer and hidden else 0
    entry: dict[str, Any] | None = None  # the question's entry in the file of answers
    if answer and step.ask:
        entry = {"lesson": lesson.title, "step": step.title, "question": question(step.ask)}
        entry |= {"choices": [plain(choice) for choice in answer.choices], "right": sorted(answer.right)}
        entry["revealed"] = not hidden
    _send(key, made, PhonePage(step_name, taken, body), entry)
    return answer


def _revealed(key: RoomKey, step_name: str) -> dict[str, list[int]]:
    """Return the right choices of this step's lesson, by step, of those that phones have been shown."""
    lesson, entries = step_name.rpartition("-")[0] + "-", rooms.rooms().tally(key.id).asked
    return {name: one["right"] for name, one in entries.items() if name.startswith(lesson) and one.get("revealed")}


def _is_new(made: tuple[Any, ...]) -> bool:
    return st.session_state.get("lesson_room_shown") != made


def _send(key: RoomKey, made: tuple[Any, ...], shown: PhonePage, entry: Any = None) -> None:
    """Send a page to the phones. made: identifies it, so that it is not sent again."""
    try:
        rooms.rooms().show(key, shown, entry)
        st.session_state.lesson_room_shown = made
    except (ValueError, OSError) as error:
        st.toast(escaped(error))
        if error.args == (rooms.GONE,):
            st.session_state.update(lesson_room=None, lesson_room_joined=None)


def _show_strip(key: RoomKey, step: str, answer: Answer | None, revealed: bool) -> None:
    st.html(css(phone.STRIP))
    with st.container(key="lesson_room"):
        st.fragment(_strip, run_every=POLL_SECONDS)(key, step, answer, revealed)


def _strip(key: RoomKey, step: str, answer: Answer | None, revealed: bool) -> None:
    """Draw how many phones there are and what they answered, but before the reveal not on a screen that the class sees.
    step: "" if no lesson is open."""
    with guarded():
        if not rooms.rooms().is_open(key):
            st.rerun()  # rerun the whole page, whose button shows it
        found = rooms.rooms().tally(key.id)
    counts = found.counts.get(step, {})
    facts = [say_count("{count} phone", "{count} phones", found.phones)]
    if answer:
        facts.append(say("{count} answered", count=sum(counts.values())))
    parts = [tag("p", " · ".join(facts), role="status")]
    elsewhere = step and found.step != step  # another tab of the teacher sends its own step
    if elsewhere:
        parts.append(tag("p", say("Phones show another step.")))
    elif answer and step not in found.asked:
        parts.append(tag("p", say(FULL, most=rooms.MAX_STEPS)))
    elif answer and (revealed or not st.session_state.lesson_present):
        parts.append(phone.bars(answer, counts, right=revealed))
    elif answer:
        parts.append(tag("p", say("The class sees the results when you show the answer.")))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(join(parts))
        if elsewhere and st.button(say("Show this step on phones"), key="lesson_room_here"):
            st.session_state.lesson_room_shown = None
            st.rerun()  # rerun the whole page, which sends the step


def _invitation() -> None:
    problem, key = st.session_state.lesson_room_problem, _key()
    if problem:
        st.error(escaped(problem))
    elif key is None:
        st.info(say(NO_SERVER))
    else:
        page = (st.context.url or "").split("?")[0].rstrip("/")
        address = f"{page.rpartition('/')[0] or page}/room/{key.id}"
        if any(f"//{host}" in address for host in LOCAL):
            st.warning(say(ONLY_HERE))
        code = segno.make(address, error="m").svg_data_uri(scale=8, border=3, dark="#000", light="#fff", svgclass=None)
        alt = say("A QR code that opens the class session on a phone")
        st.html(tag("img", src=code, alt=alt, class_="qr"))
        st.code(address, language=None, wrap_lines=True)
        st.caption(escaped(say(KEPT)))
        with st.container(horizontal=True):
            download(say("Answers as CSV"), deferred(lambda: _csv(key)), "answers.csv", "text/csv", key="room_csv")
            with st.popover(say("End the session"), icon=":material/close:", key="room_end_asked"):
                st.caption(say("All answers are deleted. To keep them, download them first."))
                if st.button(say("End and delete the answers"), key="room_end", type="primary"):
                    with guarded():
                        rooms.rooms().close(key)
                    st.session_state.update(lesson_room=None, lesson_room_joined=None)
                    st.rerun()  # rerun the whole page, without the dialog


def _csv(key: RoomKey) -> str:
    """Return CSV with a line for each choice of each step shown, numbered as shown: an edited step is another one."""
    found = rooms.rooms().tally(key.id)
    lines: list[Sequence[object]] = [
        ("number", "lesson", "step", "question", "answer", "right", "count", "share")  # not shown
    ]
    for shown, (name, entry) in enumerate(found.asked.items(), 1):
        counts = found.counts.get(name, {})
        total = sum(counts.values())
        for number, choice in enumerate(entry["choices"]):
            count, right = counts.get(number, 0), "yes" if number in entry["right"] else "no"  # not shown
            texts = [cell(text) for text in (entry["lesson"], entry["step"], entry["question"], choice)]
            lines.append([shown, *texts, right, count, f"{count / total:.3f}" if total else ""])
    return csv_text(lines)


def drawn(step: Step, now: RunView, compared: RunView, *, hidden: bool) -> Drawn:
    """Return the step as the screen shows it: while hidden, without anything that answers its question."""
    query = steps.query_of(step, now)
    if not hidden:
        return _shown(step, now, compared if step.compares else None, query)
    if step.numbers is not None:
        return Drawn(pictures.numbers(step.numbers.plain, None))
    kind = step.ask.kind if step.ask else ""
    if BEFORE_ANSWER.get(kind) == "beside" and now.run.key != compared.run.key:
        return _shown(step, compared, None, query, run_names(now.model.name, compared.model.name)[1:])
    if BEFORE_ANSWER.get(kind) == "now":  # the question is about its masks
        return _elsewhere()
    return Drawn(steps.tokens(step, now, query if kind in ABOUT_A_QUERY else None))


def _shown(step: Step, now: RunView, compared: RunView | None, query: int, names: Sequence[str] = ()) -> Drawn:
    names = names or run_names(now.model.name, (compared or now).model.name)  # of the losses
    if step.show == "overview":
        found = now.survey()
        every = Canvas("overview", overview.packet(now, found, *step.head))
        return Drawn(canvases=[(now.model.name, every)], hatched=bool(found.blocked.any()))
    if step.show == "losses":
        one, other = now.predictions(), compared.predictions() if compared else None
        other_losses, title = other.losses if other else None, say("loss, nats/token")
        return Drawn(losses_table(now.tokens, one.losses, other_losses, names, title)) if one else Drawn()
    if step.show == "texts":
        title, texts = say("Mean loss of each text, in nats/token"), now.run.batch.texts
        means = [results.ask(mean_losses, view.run) for view in (now, compared) if view]
        return Drawn(losses_table(texts, means[0], means[-1] if len(means) > 1 else None, names, title))
    if step.show == "tokens":
        return Drawn(steps.tokens(step, now, step.query))
    if step.show == "image":
        (layer, head), image = step.head, rendered_scene(step.image or "")
        title, uri = cached_figure(lit_picture, now.head(layer, head), now.name(layer, head), image, query)
        return Drawn(tag("p", title) + scene_image(uri, title))
    if step.show in pictures.DRAWN:
        return Drawn(steps.still(step, now))
    if step.show in ("head", "pair"):
        return _phone_head(step, now, compared if step.show == "pair" else None)
    return _elsewhere()


def _elsewhere() -> Drawn:
    return Drawn(tag("p", say(ELSEWHERE), class_="note"))


def _phone_head(step: Step, now: RunView, compared: RunView | None) -> Drawn:
    name, (view, other) = now.name(*step.head), steps.heads(step, now, compared)
    look: dict[str, Any] = {"name": name, "query": -1 if step.query is None else step.query}
    zmax = head_range(view) if other is None else head_range(view, other)

    def packet(view: HeadView) -> Canvas:
        return Canvas("heatmap", cached_figure(picture_packet, view, most=zmax, **look))

    canvases = [(say("{head} of {model}", head=name, model=now.model.name), packet(view))]
    if compared and other:
        canvases.append((run_names(now.model.name, compared.model.name)[1], packet(other)))
        change = cached_figure(difference_packet, changed(*with_shared_labels(view, other)), **look)
        canvases.append((say("difference"), Canvas("heatmap", change)))
    hatched = any(view.any_blocked().any() for view in (view, other) if view)
    return Drawn(canvases=canvases, hatched=hatched)
