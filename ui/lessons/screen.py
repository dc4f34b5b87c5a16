"""One step of a lesson on the screen: the text and the question on one side, the picture on the other."""

import math
import unicodedata
from functools import partial
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from i18n import N_, say, together
from lessons.answer import mean_losses
from lessons.image_steps import rendered_scene
from lessons.lesson import Lesson, Step
from lessons.questions import ABOUT_A_QUERY, BEFORE_ANSWER, Answer
from ui import explain, page, results
from ui.guard import USER_FACING_ERRORS, guarded, message_for
from ui.heads import head as head_picture
from ui.heads import overview
from ui.lessons import choices, classroom, steps
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.streamlit_internals.selectors import SELECTORS
from ui.widgets import component_value, deferred, download
from viz.components import source
from viz.head import anonymous_masks_figure, comparison_figure, difference_figure, head_figure, head_range
from viz.heatmap import enlarged
from viz.html import tag
from viz.images import image_attention_packet, weights_tables
from viz.lessons import pictures, screen
from viz.lessons.glossary import prose
from viz.lessons.pictures import step_image_attention
from viz.lessons.screen import QuestionSummary, summary_page, verdict_on
from viz.numbers import loss_figure

ABOVE, ABOVE_PRESENTED = 185, 110  # pixels above and below the picture on page load
KEY = 4 * 1.7  # height of the four lines below a presented picture, in multiples of their font size
SMALLEST = 10  # font size of the overview, in pixels


def show(lesson: Lesson, name: str, number: int) -> None:
    """Draw a step. name: the key of the lesson's answers. number: of the step, from 1."""
    step = lesson.steps[number - 1]
    failed = partial(classroom.show_failed, lesson, name, number)
    with guarded(on_trouble=failed):
        now, compared = steps.pair(step)
        answer = steps.answered(step, now, compared) if step.ask else None
    given = choices.given(name, number)
    open_question = answer is not None and given is None and st.session_state.lesson_asks
    left, right = st.columns([1, 1.3], gap="large")
    with left:
        st.markdown(f"#### {escaped(step.title)}")
        st.html(cached_figure(prose, step.prose, "prose"))
        if step.formula:
            st.latex(step.formula)
        if open_question and answer:
            _ask(step, answer, name, number)
        else:
            if answer and step.ask:
                judged = answer.offered() if st.session_state.lesson_present else answer
                st.html(verdict_on(judged, given, screen.question(step.ask)))
            if step.notice:
                st.html(cached_figure(prose, "**" + say("What to notice.") + f"** {step.notice}", "notice"))
            steps.open_page(step)
    with right, guarded(on_trouble=failed):
        _picture(step, now, compared, hidden=open_question)


def show_end(lesson: Lesson, name: str) -> None:
    """Draw the lesson's summary, and each question with this user's answer and the right one, computed from its run; in
    a class session no questions, as the answers are on the phones."""
    asked, lines = [], []
    for number, step in enumerate(() if classroom.is_open() else lesson.steps, 1):
        if not step.ask:
            continue
        found = _found(step)
        answer, text = (found, say("Not answered yet.")) if isinstance(found, Answer) else (None, found)
        one = QuestionSummary(number, step.title, screen.question(step.ask), answer, choices.given(name, number))
        asked.append(one)
        lines.append((one.kind, one.title, text if answer is None or one.kind == "open" else screen.plain(answer.why)))
    left, right = st.columns([1, 1.3], gap="large") if lesson.summary and asked else (st.container(), st.container())
    with left:
        st.markdown("#### " + say("Summary"))
        st.html(cached_figure(prose, lesson.summary or lesson.aim, "summary"))
    with right:
        if asked:
            st.markdown("#### " + say("Your answers"))
        st.html(screen.seen(lines))
        right_ones, wrong_ones = (sum(one.kind == kind for one in asked) for kind in ("right", "wrong"))
        if count := right_ones + wrong_ones:
            score = screen.scores(count)[-1].format(right=right_ones)
            st.html(f'<p class="aim">{score}</p>')
        summary = deferred(partial(summary_page, lesson, asked))
        download(say("Summary to print"), summary, "summary.html", "text/html", key="lesson_summary")


def _found(step: Step) -> Answer | str:
    """Return the answer to a step's question, or why there is none: an error in one step does not affect the others."""
    try:
        return steps.answered(step, *steps.pair(step))
    except USER_FACING_ERRORS as error:
        return say("{problem}.", problem=message_for(error))


def _ask(step: Step, answer: Answer, name: str, number: int) -> None:
    assert step.ask is not None
    with st.container(key="lesson_question"):
        st.markdown(f"**{escaped(screen.question(step.ask))}**")
    typed = answer.number is not None and not st.session_state.lesson_present  # in a presentation, the class votes
    if typed:

        def take() -> None:
            typed = unicodedata.normalize("NFKC", st.session_state.typed_answer)  # full-width, of a Chinese keyboard
            try:
                found = float(typed.replace(",", ".").replace("−", "-"))  # decimal commas, as in most of Europe
            except ValueError:
                found = math.nan
            if math.isfinite(found):
                choices.give(name, number, answer.typed(found))
            else:
                st.toast(say("Type a number."))

        form = st.form("typed", border=False)  # a form, which Enter submits
        with form, st.container(horizontal=True, vertical_alignment="bottom"):
            label = say("A whole number")  # the answer is a count
            if answer.within:
                label = say("A number; up to {within:g} away counts as right", within=answer.within)
            st.text_input(label, key="typed_answer", max_chars=40, autocomplete="off")
            st.form_submit_button(say("Check"), key="check_answer", on_click=take)
    for one, choice in enumerate(() if typed else answer.choices):
        give, label = partial(choices.give, name, number, one), escaped(screen.plain(choice))
        shortcut = None if classroom.is_open() else str(one + 1)
        st.button(label, key=f"answer_{one}", width="stretch", shortcut=shortcut, on_click=give)
    give, icon = partial(choices.give, name, number, choices.SHOWN), ":material/visibility:"
    st.button(say("Show the answer"), key="reveal", type="tertiary", icon=icon, shortcut="A", on_click=give)


def _picture(step: Step, now: RunView, compared: RunView, *, hidden: bool) -> None:
    """Draw what the step shows; until its question is answered, nothing that answers it."""
    if not hidden:
        _shown(step, now, compared if step.compares else None)
        return
    if step.numbers is not None:
        st.html(cached_figure(pictures.numbers, step.numbers.plain, None))
        return
    shown = BEFORE_ANSWER.get(step.ask.kind if step.ask else "", "")
    same = now.run.key == compared.run.key
    if shown == "now":
        layer, head = step.head  # the question is about its masks, so do not name them
        view = now.head(layer, head)
        queries, keys = view.weights.shape
        template = N_("Attention of {head}, {queries} × {keys} (queries × keys).")
        alt = say(template, head=now.name(layer, head), queries=queries, keys=keys)
        _draw(cached_figure(anonymous_masks_figure, view, dark=page.is_dark(), query=step.query), alt)
        st.html(page.note(say("Hatched cells are blocked.")))
    elif shown == "beside" and not same:
        _shown(step, compared, None, screen.run_names(now.model.name, compared.model.name)[1])
    else:
        about_query = step.ask is not None and step.ask.kind in ABOUT_A_QUERY
        st.html(steps.tokens(step, now, steps.query_of(step, now) if about_query else None))


def _shown(step: Step, now: RunView, compared: RunView | None, name: str = "") -> None:
    """Draw what the step shows. name: of a run that is shown alone, before the comparison with another."""
    if step.show == "training":
        curves, shown = st.container(key="curves_and_head").columns([2, 3], gap="small")
        with curves:
            run = steps.training(step, now)
        with shown:
            _head(step, run, None)
    elif step.show in pictures.DRAWN:
        steps.show(step, now)
    elif step.show == "overview":
        (layer, head), size = step.head, text_size()
        if size:
            st.html(f"<style>.st-key-lesson_heads {{ --zoom: {size / SMALLEST:.3f}; }}</style>")
        with st.container(key="lesson_heads"):
            overview.show(now, now.survey(), layer, head, key="lesson_overview")
    elif step.show in ("losses", "texts"):
        _losses(step, now, compared, name)
    elif step.show == "tokens":
        st.html(steps.tokens(step, now, step.query))
    elif step.show == "image":
        # what each word attends to in the step's image, first the query
        (layer, head), query = step.head, steps.query_of(step, now)
        attention = cached_figure(
            step_image_attention, now.head(layer, head), now.name(layer, head), rendered_scene(step.image or ""), query
        )
        zoom = (text_size() or MIN_TEXT) / MIN_TEXT
        room = f"calc((74vh - var(--strip, 0px)) / {zoom:.3f})"  # the image's share of the window's height
        st.html(f"<style>.st-key-lesson_image {{ zoom: {zoom:.3f}; --room: {room}; }}</style>")
        with st.container(key="lesson_image"):
            packet = cached_figure(image_attention_packet, attention, alone=True)
            _image(data=packet, key=f"lesson_image_{layer}_{head}", tables=partial(weights_tables, attention))
    else:
        _head(step, now, compared if step.show == "pair" else None)


def _head(step: Step, now: RunView, compared: RunView | None) -> None:
    name, dark = now.name(*step.head), page.is_dark()
    view, other = steps.heads(step, now, compared)
    views = [view] if other is None else [view, other]
    titles = (*screen.run_names(now.model.name, (compared or now).model.name), say("difference"))
    alts = [cached_figure(explain.head_alt, name, view, False) for view in views]
    if other is None:
        _draw(cached_figure(head_figure, view, dark=dark, query=step.query), *alts)
    elif width() <= NARROW:  # one below the other
        zmax = head_range(*views)
        figures = [cached_figure(head_figure, view, dark=dark, query=step.query, zmax=zmax) for view in views]
        figures.append(cached_figure(difference_figure, view, other, dark=dark, query=step.query))
        for number, (title, figure, alt) in enumerate(zip(titles, figures, [*alts, ""], strict=True)):
            st.caption(title)
            _draw(figure, f"{title}: {alt}" if alt else title, number=number)
    else:
        figure = cached_figure(comparison_figure, view, other, dark=dark, titles=titles, query=step.query)
        beside_it = say("Beside it: the run that it is compared with, and the difference.")
        _draw(figure, together([alts[0], beside_it]), room="pair")
    named = tag("b", say("{head} of {model}", head=name, model=now.model.name))
    st.html("".join([page.note(named), cached_figure(explain.key, views, head_range(*views))]))


def _draw(figure: go.Figure, alt: str, *, room: str = "one", number: int = 0) -> None:
    """A head's picture, with larger text while the lesson is presented."""
    size, key = text_size(), "lesson_figure" + (f"_{number}" if number else "")
    if size:
        figure = enlarged(figure, size)
    above = (round(ABOVE_PRESENTED + KEY * size) if size else ABOVE) + classroom.strip_height()
    head_picture.show(figure, alt, room=room, key=key, above=above, on_pick=None)


def _losses(step: Step, now: RunView, compared: RunView | None, name: str) -> None:
    """Draw the loss of each token, or the mean of each text. name: as in _shown."""
    other_run = compared or now
    names = (name, name) if name else screen.run_names(now.model.name, other_run.model.name)
    differ = now.run.key != other_run.run.key
    if step.show == "texts":
        one, other = (results.ask(mean_losses, view.run) for view in (now, other_run))
        pieces, changed = now.run.batch.texts, differ and len(one) == len(other)
        alt = explain.texts_alt(one, other, changed=changed, names=names)
    else:
        predicted, others = now.predictions(), other_run.predictions()
        if predicted is None or others is None:
            st.info(say("This model predicts no next token."))
            return
        one, other, pieces = predicted.losses, others.losses, now.run.batch.pieces[now.row]
        changed = differ and len(one) == len(other)
        alt = cached_figure(explain.loss_alt, one, other, changed=changed, names=names)
    shown = (one, other, pieces) if changed else (one, one, pieces)
    look: Any = {"names": names if changed or name else None, "first": int(step.show == "texts")}  # texts count from 1
    figure = cached_figure(loss_figure, *shown, changed=changed, **look)
    size = text_size()
    if size:
        figure = enlarged(figure, size)
    with st.container(key="lesson_chart"):
        page.chart(figure, "lesson_losses", alt, height=420)


WIDTH, NARROW = 1280, 640  # pixels: until the browser has reported it; of a phone, as in viz/components/lesson.js
MIN_TEXT, TEXT_SHARE = 14, 0.012  # font size of a presented picture: minimum in pixels, and share of the window's width

_image = head_picture.canvas("images")
_listener = st.components.v2.component(
    "unmask_lesson", html="<span></span>", js=source("calls.js", "shortcuts.js", "lesson.js")
)


def listen() -> None:
    """Draw the invisible component that reports the window's width and handles further keys. Call once on the page."""
    listener_key = "listening_lesson"  # CSS hides keys that begin with "listening_" (ui/page.py)

    def take() -> None:
        width = component_value(listener_key).get("width")
        if isinstance(width, int):
            st.session_state.lesson_width = min(max(width, 200), 8_000)

    props = {"width": width(), "presented": st.session_state.lesson_present, "main": SELECTORS["main"]}
    _listener(data=props, key=listener_key, on_width_change=take)


def width() -> int:
    """Return the width of the window in pixels."""
    return st.session_state.get("lesson_width", WIDTH)


def text_size() -> float | None:
    """Return the font size in pictures, in pixels, while the lesson is presented; None for that of the other pages."""
    return max(MIN_TEXT, TEXT_SHARE * width()) if st.session_state.lesson_present else None
