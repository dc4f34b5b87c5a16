"""The runs behind the Cross-attention page, and what is drawn of them; what is measured is remembered."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from model.base import Model
from model.cross_attention.dates import DateAccuracy, DatesModel, Written, answer_chances, measure
from model.heads.view import HeadView
from model.masks import MaskSpec
from model.sampling import logits_at, predictions
from model.text import TokenBatch
from serving.job import ModelRef
from ui import results, run_view
from ui.cross_attention.lines import PARTS, SourceTexts
from ui.run_view import RunView
from viz.cross_attention.alignment import PADDING_SIGN, Alignment
from viz.numbers import Candidate

SAMPLE = 100  # held-out strings
CANDIDATES = 6


@dataclass(frozen=True, eq=False)
class AttentionPair:
    """One of a run's attentions now and under the standard masks."""

    now: RunView
    standard: RunView


def run(model: Model, lines: SourceTexts, spec: MaskSpec, row: int) -> dict[str, AttentionPair]:
    """One run under spec and one under the standard masks, as each of their attentions. Raises what running raises."""
    return {part: AttentionPair(*run_view.run_pair(model, lines.reading.batch, spec, row, part)) for part in PARTS}


def view(found: RunView, layer: int, head: int | None) -> HeadView:
    """A head to draw, or the mean of the layer's heads; padding by its sign, which takes less room than its name.

    Remembered, as all that is made here of answers.
    """
    return found.kept(("signed head", layer, head), lambda: _view(found, layer, head))  # not shown


def _view(found: RunView, layer: int, head: int | None) -> HeadView:
    if head is None:
        one = _mean([found.head(layer, number) for number in range(run_view.shape_of(found)[1])])
    else:
        one = found.head(layer, head)
    queries, keys = (_signed(batch, found.row) for batch in (found.run.queries, found.run.keys))
    return replace(one, queries=queries, keys=keys)


def _mean(views: list[HeadView]) -> HeadView:
    weights, scaled = (np.mean([getattr(one, name) for one in views], axis=0) for name in ("weights", "scaled"))
    return replace(views[0], weights=weights, scaled=scaled)


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of writing a row's target. outputs [N]: what each writes, the last what would come next.

    queries: where the steps' rows are, among the target's positions. probabilities [N], 0 to 1: of each output.
    """

    outputs: list[str]
    queries: slice
    probabilities: np.ndarray


def steps(found: RunView, standard: RunView) -> Steps:
    """What the run says of its target, of which every token but the first was written by the row before it.

    The last output is what would come next under the standard masks.
    """
    return found.kept("steps", lambda: _steps(found, standard))


def _steps(found: RunView, standard: RunView) -> Steps:
    batch, row = found.run.batch, found.row
    here = batch.real(row)
    written = slice(here.start + 1, here.stop)
    last = int(logits_after(standard, here.stop - 1).argmax())
    outputs = [*batch.pieces[row][written], found.model.label(last)]
    losses = results.ask(predictions, found.run, row, None, CANDIDATES).losses
    chance = float(logits_after(found, here.stop - 1).softmax(-1)[last])
    return Steps(outputs, here, np.append(np.exp(-losses[written]), chance))


def logits_after(found: RunView, position: int) -> torch.Tensor:
    """[V], of what follows the token at a position of the target."""
    return results.ask(logits_at, found.run, found.row, position)


def candidates(found: RunView, position: int) -> list[Candidate]:
    """The likeliest tokens after a position of the target."""
    return found.kept(("candidates", position), lambda: _candidates(found, position))


def _candidates(found: RunView, position: int) -> list[Candidate]:
    chances = logits_after(found, position).softmax(-1)
    top = chances.topk(min(CANDIDATES, len(chances)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [Candidate(found.model.label(token), chance) for token, chance in pairs]


def alignment(found: RunView, layer: int, head: int | None, some: Steps, step: int) -> Alignment:
    """The cross-attention of each step, which a head does, or the mean of the layer's heads."""
    return found.kept(("alignment", layer, head, step), lambda: _alignment(found, view(found, layer, head), some, step))


def _alignment(found: RunView, shown: HeadView, some: Steps, step: int) -> Alignment:
    keep_source = found.run.keys.keep[found.row].numpy()
    rows = some.queries
    return Alignment(
        list(shown.keys), some.outputs, shown.weights[rows], ~keep_source, shown.any_blocked()[rows],
        some.probabilities, step,
    )  # fmt: skip


def written(model: DatesModel, lines: SourceTexts, spec: MaskSpec) -> Written:
    """What the model writes by itself under masks, for every row; remembered."""
    source = lines.reading.batch.source
    assert source is not None
    return results.ask(DatesModel.write, ModelRef.of(model), source, spec)


def chances(model: DatesModel, lines: SourceTexts, row: int, answers: list[str]) -> tuple[float, ...]:
    """The probability of each of these as the whole answer to a row, under the standard masks; remembered."""
    if not answers:
        return ()
    return results.ask(answer_chances, ModelRef.of(model), lines.reading.rows[row], tuple(answers))


def measured(model: DatesModel, spec: MaskSpec) -> DateAccuracy:
    """On the held-out sample; remembered."""
    return results.ask(measure, ModelRef.of(model), spec, SAMPLE)


def _signed(batch: TokenBatch, row: int) -> list[str]:
    """The row's pieces, padding as a sign."""
    pairs = zip(batch.pieces[row], batch.keep[row].tolist(), strict=True)
    return [piece if real else PADDING_SIGN for piece, real in pairs]
