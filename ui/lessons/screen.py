"""One step of a lesson on the screen: the words and the question on one side, the picture on the other."""

import streamlit as st

from model.language import N_, say
from model.lessons.lesson import Lesson, Step
from model.lessons.questions import MODELS, Answer
from ui import explain, overview, page
from ui import head as head_picture
from ui.drawn import drawn
from ui.guard import guarded
from ui.lessons import choices, runs
from ui.lessons.verdict import verdict
from ui.markdown import escaped
from ui.run_view import RunView
from viz.head import comparison_figure, head_figure, head_range
from viz.lessons import screen, words
from viz.lessons.prose import prose
from viz.numbers import loss_figure

BEFORE = {"picture": "now", "loss": "beside", "row": "beside", "future": "beside", "padding": "beside"}
ABOVE, ABOVE_PRESENTED = 185, 190  # pixels over the picture as the page opens
END_LINES = 3
ASKS = {  # of a step's run; `first` asks of masks that were flipped
    "loss": N_("Will the mean loss fall, rise or stay?"),
    "lower": N_("Which of the two has the lower loss on this text?"),
    "looks": N_("Which token will the framed one look at most?"),
    "sees": N_("How many tokens may the framed one look at?"),
    "next": N_("Which token will the model hold likeliest after the framed one?"),
    "row": N_("Will the weights in the framed token's row change?"),
    "habit": N_("Where does this head look most of the time?"),
    "future": N_("How much of this head's attention will go to tokens that come later?"),
    "padding": N_("How much of this head's attention will go to padding?"),
    "picture": N_("Which masks made this picture?"),
}


def show(lesson: Lesson, name: str, number: int) -> None:
    """name: what answers are kept under. number: of the step, from 1."""
    step = lesson.steps[number - 1]
    with guarded():
        found = runs.pair(step)
        answer = runs.answered(step, found) if step.ask else None
    given = choices.given(name, number)
    open_question = answer is not None and given is None and st.session_state.lesson_asks
    left, right = st.columns([1, 1.3], gap="large")
    with left:
        st.markdown(f"#### {escaped(step.title)}")
        st.html(drawn(prose, step.prose, "prose"))
        if open_question and answer:
            _ask(step, answer, name, number)
        else:
            if answer:
                st.html(verdict(answer, given))
            if step.notice:
                st.html(drawn(prose, "**" + say("What to notice.") + f"** {step.notice}", "notice"))
    with right, guarded():
        _picture(step, found, hidden=open_question)


def show_end(lesson: Lesson, name: str) -> None:
    """What was seen, computed from the lesson's runs, and how the predictions went."""
    asked = {number: step for number, step in enumerate(lesson.steps, 1) if step.ask}
    with guarded():
        answers = {number: runs.answered(step, runs.pair(step)) for number, step in asked.items()}
    st.markdown("#### " + say("What you saw"))
    lines = [
        say("{title}: {seen}", title=asked[number].title, seen=words.plain(answers[number].why))
        for number in list(answers)[-END_LINES:]
    ]
    st.html(screen.seen(lines))
    given = {number: choices.given(name, number) for number in answers}
    right = sum(given[number] in answer.right for number, answer in answers.items())
    counted = sum(one is not None for one in given.values())
    if counted:
        score = say("You predicted {right} of {asked} right.", right=right, asked=counted)
        st.html(f'<p class="aim">{score}</p>')
    computed = say("Each line is computed from a run of this lesson.")
    st.html(f'<p class="aim">{computed}</p>')


def _ask(step: Step, answer: Answer, name: str, number: int) -> None:
    assert step.ask is not None
    with st.container(key="lesson_question"):
        st.markdown(f"**{escaped(say(ASKS[step.ask.kind]))}**")
    for place, choice in enumerate(answer.choices):
        st.button(escaped(words.plain(choice)), key=f"answer_{place}", width="stretch", shortcut=str(place + 1),
                  on_click=choices.give, args=(name, number, place))  # fmt: skip


def _picture(step: Step, found: runs.Pair, *, hidden: bool) -> None:
    """What the step shows; until its question is answered, nothing that answers it."""
    if not hidden:
        _shown(step, found.now, found.beside if step.compares else None)
        return
    shown = BEFORE.get(step.ask.kind if step.ask else "", "")
    same = found.now.run.key == found.beside.run.key
    if shown == "now":
        _shown(step, found.now, None)
    elif shown == "beside" and not same:
        _shown(step, found.beside, None)
    else:
        query = found.now.run.queries.real(found.now.row).stop - 1 if step.query is None else step.query
        st.html(screen.tokens(found.now.run.queries.pieces[found.now.row], query if _about_a_query(step) else None))


def _about_a_query(step: Step) -> bool:
    return step.ask is not None and step.ask.kind in ("looks", "sees", "next", "row")


def _shown(step: Step, now: RunView, beside: RunView | None) -> None:
    if step.show == "overview":
        layer, head = step.head
        with st.container(key="lesson_heads"):
            overview.show(now.survey(), layer, head, (), key="lesson_overview")
    elif step.show == "losses":
        _losses(now, beside)
    elif step.show == "tokens":
        st.html(screen.tokens(now.run.queries.pieces[now.row], step.query))
    else:
        _head(step, now, beside if step.show == "pair" else None)


def _head(step: Step, now: RunView, beside: RunView | None) -> None:
    layer, head = step.head
    name, view, dark = f"L{layer} H{head}", now.head(layer, head), page.is_dark()
    above = ABOVE_PRESENTED if st.session_state.lesson_present else ABOVE
    other = None if beside is None else beside.head(layer, head)
    if other is not None and other.weights.shape == view.weights.shape:
        titles = (say("this run"), say("compared with"), say("difference"))
        figure = drawn(comparison_figure, view, other, dark=dark, titles=titles, query=step.query)
        views = [view, other]
    else:
        figure, views = drawn(head_figure, view, dark=dark, query=step.query), [view]
    alt = drawn(explain.head_alt, name, view, len(views) > 1)
    head_picture.show(
        figure, alt, room="pair" if len(views) > 1 else "one", key="lesson_figure", above=above, on_pick=None
    )
    st.caption(escaped(say("{head} of {model}", head=name, model=now.model.name)))
    st.html(drawn(explain.key, views, head_range(*views)))


def _losses(now: RunView, beside: RunView | None) -> None:
    one, other = now.predictions(), (beside or now).predictions()
    if one is None or other is None:
        st.info(say("This model predicts no next token."))
        return
    pieces, changed = now.run.batch.pieces[now.row], beside is not None and len(one.losses) == len(other.losses)
    names = say("this run"), say("compared with")
    if changed and beside and beside.model.name != now.model.name:
        names = _called(now), _called(beside)
    figure = drawn(loss_figure, one.losses, other.losses, pieces, changed=changed, names=names)
    st.plotly_chart(figure, key="lesson_losses", config=page.CHART, height=420,
                    alt=drawn(explain.loss_alt, one.losses, other.losses))  # fmt: skip


def _called(run: RunView) -> str:
    name = run.model.name
    return say(MODELS[name]) if name in MODELS else name
