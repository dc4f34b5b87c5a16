"""The runs of a lesson's step: what it shows, what that is compared with, and the answer to its question."""

from lessons.image_steps import encoded
from lessons.lesson import Step
from lessons.questions import Answer, answer
from model.masks import MaskSpec
from serving.job import ModelRef, RunRef
from serving.loaded_models import OF_PAGES
from ui import results, run_view
from ui.guard import problem_in
from ui.lessons import step_pictures
from ui.run_view import RunView
from ui.sidebar import models


def pair(step: Step) -> tuple[RunView, RunView]:
    """What the step shows, and what that is compared with. Raises what loading a model and reading a text raise,
    ValueError for a row or head that is not there."""
    other = step.beside
    now = _view(step, step.model, step.text, step.masks, step.image)
    values = other.model or step.model, other.text or step.text, other.masks, other.image or step.image
    return now, _view(step, *values)


def answered(step: Step, now: RunView, beside: RunView) -> Answer:
    """The answer to the step's question, computed from its runs. Raises ValueError where it cannot be asked of them."""
    assert step.ask is not None
    try:
        asked = step.asked(step_pictures.series(step, now))
        return results.ask(answer, now.run.model, now.run, beside.run, beside.model.name, asked)
    except ValueError as error:
        raise step.wrong("ask", problem_in(error)) from None


def _view(step: Step, name: str, text: str, masks: MaskSpec | None, image: str | None) -> RunView:
    model = models.loaded().own(name) if name in OF_PAGES else models.get(name)
    batch = encoded(step.wrong, model, name, image, text) or run_view.tokenize(model, text, step.pad, None).batch
    step.check(model, name, batch)
    spec = model.standard if masks is None else masks
    return RunView(model, RunRef(ModelRef.of(model), batch, spec, step.attention), spec, step.row - 1)
