"""The runs of a lesson's step: what it shows, what that is compared with, and the answer to its question."""

from markupsafe import Markup

from i18n import N_, say
from lessons.lesson import Step
from lessons.questions import Answer, QuestionSubject, answer
from model.base import Model
from model.masks import MaskSpec
from serving.job import ModelRef, RunRef
from serving.loaded_models import OF_PAGES
from ui import results, run_view
from ui.guard import problem_in
from ui.run_view import RunView
from ui.sidebar import models
from viz.lessons import screen


def verdict(answer: Answer, given: int | None, question: str = "") -> Markup:
    """given: the number of the choice; None, or of none, where the user chose nothing. question: shown above it."""
    right = " / ".join(screen.plain(answer.choices[number]) for number in sorted(answer.right))
    own = screen.plain(answer.choices[given]) if given is not None and given < len(answer.choices) else None
    if own is None:
        kind, first = "told", say("The answer is: {right}", right=right)
    elif given in answer.right:
        kind, first = "right", say("Your answer: {own}. That is right.", own=own.rstrip(".。"))
    else:
        kind = "wrong"
        first = say("Your answer: {own}. Not quite. The answer is: {right}", own=own.rstrip(".。"), right=right)
    return screen.verdict(kind, [first, screen.plain(answer.why)], question)


def pair(step: Step) -> tuple[RunView, RunView]:
    """What the step shows, and what that is compared with. Raises what loading a model and reading a text raise,
    ValueError for a row or head that is not there."""
    other = step.beside
    now = _view(step, step.model, step.text, step.masks)
    return now, _view(step, other.model or step.model, other.text or step.text, other.masks)


def answered(step: Step, now: RunView, beside: RunView) -> Answer:
    """The answer to the step's question, computed from its runs. Raises ValueError where it cannot be asked of them."""
    assert step.ask is not None
    asked = QuestionSubject(step.ask.kind, step.row - 1, *step.head, step.query, step.ask.among)
    try:
        return results.ask(answer, now.run.model, now.run, beside.run, beside.model.name, asked)
    except ValueError as error:
        raise step.wrong("ask", problem_in(error)) from None


def _view(step: Step, name: str, text: str, masks: MaskSpec | None) -> RunView:
    model = _model(name)
    if step.attention not in model.attentions:
        words = N_("expected an attention of {model}, one of {attentions}, got {attention}")
        offered = ", ".join(model.attentions)
        raise step.wrong("attention", say(words, model=name, attentions=offered, attention=step.attention))
    reading = run_view.tokenize(model, text, step.pad, None)
    if step.row > len(reading.rows):
        raise step.wrong("row", say("expected a row from 1 to {last}, got {row}", last=len(reading.rows), row=step.row))
    (layers, heads), (layer, head) = run_view.shape(model, step.attention), step.head
    if layer >= layers:
        words = N_("expected a layer of {model} from 0 to {last}, got {layer}")
        raise step.wrong("head", say(words, model=name, last=layers - 1, layer=layer))
    if head >= heads:
        words = N_("expected a head of {model} from 0 to {last}, got {head}")
        raise step.wrong("head", say(words, model=name, last=heads - 1, head=head))
    spec = model.standard if masks is None else masks
    found = RunView(model, RunRef(ModelRef.of(model), reading.batch, spec, step.attention), spec, step.row - 1)
    last = len(found.tokens) - 1
    if step.query is not None and step.query > last:
        raise step.wrong("query", say("expected a query from 0 to {last}, got {query}", last=last, query=step.query))
    return found


def _model(name: str) -> Model:
    """One that a page has for itself, or one that the user could choose."""
    return models.loaded().own(name) if name in OF_PAGES else models.get(name)
