"""The step “Train it yourself”: a small model that trains while the user watches. It belongs to one session."""

from functools import cache, partial
from pathlib import Path
from typing import Any

import streamlit as st

from i18n import N_, say, together
from model.heads.view import head_name
from serving import rooms, training_job
from serving.training_job import Training, TrainingProgress
from ui import page
from ui.lessons import choices, classroom
from ui.markdown import escaped
from ui.widgets import one_of
from viz.numbers import percent
from viz.why_causal.charts import Curve, loss_curves, nats

POLL_SECONDS = 0.7  # seconds between two polls of a training, which ends only after far longer without one
MAX_KEPT = 4  # maximum number of curves of earlier trainings
STEPS = (200, 300, 400, training_job.MAX_STEPS)
MASKS = {False: N_("without the mask"), True: N_("with the mask")}
ENOUGH = 300  # steps, after which a head copied in every text tried, of 600 to 8,000 characters
MIN_LOSS_INCREASE = 0.5  # nats per character by which putting the mask back raises the loss of a model that reads ahead
MIN_COPY_SCORE = 0.5  # a copy head: more than half of its attention is on the next character
PRESS_START = N_(
    "Press Start to train a two-layer model on these characters. Then train another with the other setting of the "
    "mask, and compare the curves."
)
STATES = {
    "starting": N_("Starting …"),
    "running": N_("Training"),
    "paused": N_("Paused"),
    "done": N_("Done"),
}


@cache
def fables() -> str:
    """Return the default text: some of Aesop's fables (public domain)."""
    return (Path(__file__).parent / "fables.txt").read_text(encoding="utf-8")


def show() -> None:
    if rooms.served.is_set():
        choices.listen()  # after a reload or in another tab, the browser still has the class's room
    for name, nothing in (("live_training", None), ("live_kept", []), ("live_problem", "")):
        st.session_state.setdefault(name, nothing)
    training: Training | None = st.session_state.live_training
    progress = training.watch() if training else None
    phase = _phase(progress)
    left, right = st.columns([1, 2.2], gap="large")
    with left:
        forget = partial(st.session_state.update, live_problem="")
        st.text_area(say("Text to train on; paste your own"), key="live_text", height=120, on_change=forget)
        limit = training_job.MAX_CHARACTERS
        if (left_out := len(st.session_state.live_text) - limit) > 0:
            template = N_("Training uses the text's first {most:,} characters; the other {left_out:,} are left out.")
            st.caption(say(template, most=limit, left_out=left_out))
        one_of(say("Train"), MASKS, "live_causal")
        st.segmented_control(say("Steps"), STEPS, key="live_steps", required=True)
        over = phase == "over"
        pause: Any = {"on_click": partial(_tell, "pause"), "disabled": phase != "going"}
        start: Any = {"on_click": _start, "disabled": not over}
        with st.container(horizontal=True, gap="small"):
            st.button(say("Start"), icon=":material/play_arrow:", key="live_start", type="primary", **start)
            if progress and progress.state == "paused":
                st.button(
                    say("Continue"), icon=":material/resume:", key="live_go_on", on_click=partial(_tell, "resume")
                )
            else:
                st.button(say("Pause"), icon=":material/pause:", key="live_pause", **pause)
            stop = partial(_tell, "stop")
            st.button(say("Stop"), icon=":material/stop:", key="live_stop", on_click=stop, disabled=over)
            if over and (st.session_state.live_training or st.session_state.live_kept):
                clear = partial(st.session_state.update, live_training=None, live_kept=[])
                st.button(say("Clear the chart"), key="live_clear", on_click=clear)
        if st.session_state.live_problem:
            st.error(escaped(st.session_state.live_problem))
    with right:
        # polled while it runs; the polls also keep it running
        st.fragment(_look, run_every=POLL_SECONDS if phase != "over" else None)(phase)


def _phase(progress: TrainingProgress | None) -> str:
    """Return the phase that the buttons depend on: waiting, going or over."""
    if progress is None or progress.over:
        return "over"
    return "waiting" if progress.state == "waiting" else "going"


def keep_training_alive() -> None:
    """Keep a training running while another step is shown. Call where `show` is not called."""

    def look(training: Training) -> None:
        now = training.watch()
        if now.over:
            st.rerun()  # rerun the whole page once: the polling ends
        with st.container(key="live_status"):
            st.caption(_status(training, now))

    training: Training | None = st.session_state.get("live_training")
    if training and not training.watch().over:
        st.fragment(look, run_every=POLL_SECONDS)(training)


def _look(phase: str) -> None:
    training: Training | None = st.session_state.live_training
    if training is None and not st.session_state.live_kept:
        st.info(say(PRESS_START))
        return
    now = training.watch() if training else None
    if phase != _phase(now):
        st.rerun()  # rerun the whole page once: the buttons change, and the polling begins or ends
    lines = [_line(number, old, faint=True) for number, old in st.session_state.live_kept]
    if training and now:
        with st.container(key="live_status"):
            st.markdown(_status(training, now))
        lines.append(_line(_next_number(), training, faint=False))
    steps = max([training.total_steps if training else 0, *(int(max(line.x, default=0)) for line in lines)])
    figure = loss_curves(lines, unit=say("nats/character"), steps=steps)
    end = N_("{name}, from {first} to {last}")
    ends = [say(end, name=line.name, first=nats(line.y[0]), last=nats(line.y[-1])) for line in lines if len(line.y)]
    about = say("Training loss in nats/character over the steps."), say("; ").join(ends)
    page.chart(figure, "live_figure", together(filter(None, about)))
    if not training or not now:
        return
    classroom.show_curves(lines, steps, over=now.over)
    if now.texts:
        step, text = now.texts[-1]
        st.caption(say("After {step} steps it writes, given the text's first characters:", step=step))
        st.code(text.replace("\n", "⏎"), language=None, wrap_lines=True)
    if now.with_mask is None or now.without_mask is None:
        return
    template = N_(
        "On rows of this text, run with the mask: **{with_mask}** nats/character; run without: **{without_mask}**. "
        "{copying}"
    )
    losses = {"with_mask": nats(now.with_mask), "without_mask": nats(now.without_mask)}
    st.markdown(say(template, copying=copying(now), **losses))
    if training.causal or now.best_copy[0] >= MIN_COPY_SCORE:
        return
    more = next((steps for steps in STEPS if steps >= ENOUGH and steps > training.total_steps), None)
    if more is None:
        st.caption(say("This is the maximum number of steps here; on another text it may be enough."))
        return
    longer = say("Starts from the beginning, on the text on the left; this curve is kept.")
    look: Any = {"key": "live_longer", "icon": ":material/fast_forward:", "help": longer}
    st.button(say("Train longer: {steps} steps", steps=more), on_click=partial(_start, more, training.causal), **look)


def _line(number: int, training: Training, *, faint: bool) -> Curve:
    now, name = training.watch(), say("{name}: {value}", name=number, value=say(MASKS[training.causal]))
    return Curve(name, now.steps, now.losses, training.causal, faint=faint)


def _status(training: Training, now: TrainingProgress) -> str:
    state = say(STATES[now.state]) if now.state in STATES else escaped(now.why)
    step = say("step {step} of {steps}", step=now.step, steps=training.total_steps)
    parts = [f"**{state}**", say(MASKS[training.causal]), step]
    if now.losses:
        parts.append(say("loss {loss} nats/character", loss=nats(now.losses[-1])))
    return " · ".join(parts)


def copying(now: TrainingProgress) -> str:
    score, layer, head = now.best_copy
    if score == 0:
        return say("With the mask no head can see the next character: all copy scores are exactly 0.")
    best = {"head": head_name(layer, head), "share": percent(score)}
    if score >= MIN_COPY_SCORE:
        return say(
            "Its best copy head, {head}, puts {share} of its attention on the next character: it reads the answer.",
            **best,
        )
    more = now.with_mask - now.without_mask if now.with_mask and now.without_mask else 0.0
    if more >= MIN_LOSS_INCREASE:
        return say(
            "**No head copies yet**: the best, {head}, puts {share} of its attention on the next character. But "
            "with the mask the loss is {more:.2f} nats higher: the model depends on attention that the mask blocks.",
            more=more,
            **best,
        )
    return say(
        "**No head copies yet**: the best, {head}, puts {share} of its attention on the next character. Until one "
        "does, this loss says little about the mask; a model trained with the mask may be ahead.",
        **best,
    )


def _start(steps: int | None = None, causal: bool | None = None) -> None:
    """Start a training with the current choices. steps, causal: set these choices first, if given."""
    state = st.session_state
    before: Training | None = state.live_training
    state.live_training = None
    if before and not before.watch().over:  # a second click came before the page was redrawn
        before.stop()
    if before and before.watch().losses:  # keep it with the earlier ones, as (number, training), if it has losses
        state.live_kept = [*state.live_kept, (_next_number(), before)][-MAX_KEPT:]
    if steps is not None and causal is not None:
        state.live_steps, state.live_causal = steps, causal
    try:
        state.live_training = Training(state.live_text, causal=state.live_causal, steps=state.live_steps)
        state.live_problem = ""
    except ValueError as error:
        state.live_problem = str(error)


def _tell(what: str) -> None:
    training: Training | None = st.session_state.live_training
    if training:
        getattr(training, what)()


def _next_number() -> int:
    """Return the number of the next curve: the oldest ones leave the chart, but their numbers are not reused."""
    curves = st.session_state.live_kept
    return curves[-1][0] + 1 if curves else 1
