"""The runs of a lesson's step: what it shows, what that is compared with, and the answer to its question."""

from dataclasses import dataclass

from model.base import Model
from model.jobs.job import ModelRef, Run
from model.jobs.models import OF_PAGES
from model.lessons.lesson import Step
from model.lessons.questions import Answer, Asked, answer
from model.masks import MaskSpec
from ui import models, results, run_view
from ui.run_view import RunView


@dataclass(frozen=True, eq=False)
class Pair:
    """The step's run, and the one beside it."""

    now: RunView
    beside: RunView


def pair(step: Step) -> Pair:
    """Raises what loading a model and reading a text raise, ValueError for a row or head that is not there."""
    other = step.beside
    now = _view(step, step.model, step.text, step.masks)
    return Pair(now, _view(step, other.model or step.model, other.text or step.text, other.masks))


def answered(step: Step, found: Pair) -> Answer:
    """The answer to the step's question, computed from its runs. Raises ValueError where it cannot be asked of them."""
    assert step.ask is not None
    asked = Asked(step.ask.kind, step.row - 1, *step.head, step.query, step.ask.among)
    ref = ModelRef.of(found.now.model)
    return results.ask(answer, ref, found.now.run, found.beside.run, found.beside.model.name, asked)


def _view(step: Step, name: str, text: str, masks: MaskSpec | None) -> RunView:
    model = _model(name)
    if step.attention not in model.attentions:
        raise ValueError(f"expected an attention of {name}, one of {', '.join(model.attentions)}, got {step.attention}")
    reading = run_view.tokenize(model, text, step.pad, None)
    if step.row > len(reading.rows):
        raise ValueError(f"expected a row from 1 to {len(reading.rows)}, got {step.row}")
    sizes = run_view.shape(model, step.attention)
    for what, number, count in zip(("layer", "head"), step.head, sizes, strict=True):
        if number >= count:
            raise ValueError(f"expected a {what} of {name} from 0 to {count - 1}, got {number}")
    spec = model.standard if masks is None else masks
    return RunView(model, Run(ModelRef.of(model), reading.batch, spec, step.attention), spec, step.row - 1)


def _model(name: str) -> Model:
    """One that a page has for itself, or one that the reader could choose."""
    return models.loaded().own(name) if name in OF_PAGES else models.get(name)
