"""Folders of checkpoints: the choice of a training step, and measures over all steps."""

from dataclasses import replace

import numpy as np
import streamlit as st

from i18n import say
from model import catalog
from model.heads.survey import HEAD_PATTERNS, StepMeasures, step_measures
from serving.job import ModelRef, digest
from serving.loaded_models import stamp
from ui import page, results
from ui.guard import guarded
from ui.run_view import RunView
from ui.sidebar import models
from ui.widgets import stoppable
from viz.heads.overview import steps_figure


def choose(name: str) -> str:
    """Let the user choose a training step of the folder `name`. Returns its checkpoint; for any other model, `name`."""
    found, state = catalog.steps(name, models.settings()), st.session_state
    state.training = name, found
    if len(found) < 2:
        return name if not found else next(iter(found))
    names = {step: checkpoint for checkpoint, step in found.items()}
    if state.get("training_step") not in names:
        state.training_step = list(names)[-1]
    shown = lambda step: say("final") if step is None else f"{step:,}"  # noqa: E731
    st.select_slider(
        say("Training step"), list(names), format_func=shown, key="training_step", on_change=models.forget_failure
    )
    return names[state.training_step]


def show(now: RunView, layer: int, head: int, name: str) -> None:
    """Draw the run's loss and a head's patterns over all steps, if a folder of checkpoints is chosen: its checkpoints
    are loaded in turn, no more at once than models are kept in memory. name: the head's."""
    (folder, found), state = st.session_state.training, st.session_state
    if len(found) < 2 or now.model.name not in found:
        return
    if not st.toggle(say("Over all {count} checkpoints", count=len(found)), key="over_steps"):
        return
    with guarded(), stoppable("over_steps", say("Measure the checkpoints")) as line:
        if line is None:
            return
        measured = []
        for number, checkpoint in enumerate(found, 1):
            text = say("Measuring checkpoint {place} of {count}", place=number, count=len(found))
            line.progress(number / len(found), text)
            measured.append(_measured(now, checkpoint))
    pairs = [(step, one) for step, one in zip(found.values(), measured, strict=True) if step is not None]
    losses = np.array([one.loss for _, one in pairs])
    shares = {of: np.array([_share(one.shares[of], layer, head) for _, one in pairs]) for of in HEAD_PATTERNS}
    steps = [step for step, _ in pairs]
    about = say("{head} over the training, on this text and under these masks", head=name)
    st.caption(about)
    files = "logged", *map(stamp, (folder, *found))
    logged = results.cached(files, lambda: catalog.logged_losses(folder, models.settings()))
    page.chart(steps_figure(steps, losses, shares, state.get("training_step"), logged), "steps_over", about)


def _share(shares: np.ndarray, layer: int, head: int) -> float:
    """Return one head's share of shares [L,H]; NaN if a checkpoint of another size has no such head."""
    layers, heads = shares.shape
    return float(shares[layer, head]) if layer < layers and head < heads else np.nan


def _measured(now: RunView, checkpoint: str) -> StepMeasures:
    """Return the measures of a checkpoint, cached by its files so that it need not be loaded again."""
    settings = models.settings()
    predicts = now.model.kind != "encoder" and now.model.predicts
    hardware = settings.device, settings.precision, settings.device_map
    as_stamped = replace(now.run, model=ModelRef(checkpoint, stamp(checkpoint)))
    key = ("over_steps", as_stamped.key, hardware, digest(now.masks.to_json()), now.row)

    def make() -> StepMeasures:
        run = replace(now.run, model=ModelRef.of(models.load_in_turn(checkpoint)))
        found: StepMeasures = results.ask(step_measures, run, now.row, now.masks, predicts)
        return found

    return results.cached(key, make, results.raise_if_cancelled)
