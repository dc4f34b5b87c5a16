"""What the reader looks at: one row of a batch, under the chosen and under the standard masks, as plain arrays.

A run's trace (q, k, v) is kept for whoever chooses another head; what was made of it is kept beside it, under a key of
plain data. A rerun with nothing changed computes nothing.
"""

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import astuple, dataclass, replace
from typing import TypeVar

import numpy as np

from model import base
from model.base import Model, TokenizedText
from model.heads.survey import Survey, survey
from model.masks import MaskSpec, places
from model.text import TokenBatch
from model.trace import Trace
from ui import results
from viz.mask_lab.canvas import MaskView
from viz.numbers import TOP, Candidate
from viz.view import HeadView

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a run predicts for one row: nats [T], NaN where there is none, and the likeliest next tokens."""

    losses: np.ndarray
    candidates: list[Candidate]

    def nbytes(self) -> int:
        """The memory it takes, in bytes."""
        return self.losses.nbytes + 100 * len(self.candidates)


@dataclass(frozen=True, eq=False)
class RunView:
    """A run, and the masks its weights are shown under: the run's own, or others on this layer only."""

    model: Model
    trace: Trace
    masks: MaskSpec
    row: int
    key: Hashable  # of the run

    def head(self, layer: int, head: int) -> HeadView:
        """The head as arrays to draw."""
        return self.kept(("head", layer, head), lambda: self._head(layer, head))

    def _head(self, layer: int, head: int) -> HeadView:
        stages = self.trace.stages(layer, head, self.row, self.masks)
        blocked = self.trace.blocked_by(layer, self.row, self.masks, head=head)
        return HeadView(
            stages.weights.numpy(),
            stages.scaled.numpy(),
            {name: mask.numpy() for name, mask in blocked.items()},
            list(self.trace.queries.pieces[self.row]),
            list(self.trace.keys.pieces[self.row]),
        )

    def mask(self, layer: int, head: int) -> MaskView:
        """The masks of the head to draw on; of the attention of a text to itself."""
        context = self.trace.layers[layer].context
        shape = (len(context.keep), 1, context.queries, context.keep.shape[-1])
        blockers, openers = (
            {name: mask.expand(shape)[self.row, 0].cpu().numpy() for name, mask in some.items()}
            for some in context.undrawn(self.masks, head)
        )
        return MaskView(
            {name: ~allowed for name, allowed in blockers.items()},
            openers,
            places(context.keep)[self.row].cpu().numpy(),
            [astuple(stroke) for stroke in self.masks.drawn],
            self.trace.keys.pieces[self.row],
        )

    def survey(self) -> Survey:
        """All heads at once; where other masks hold in one layer, that layer's and the run's own of all others."""
        if self.masks == self.trace.spec or len(self.masks.layers) != 1:
            return self.kept("survey", lambda: survey(self.trace, self.row, self.masks))
        run, lifted = (replace(self, masks=masks) for masks in (self.trace.spec, replace(self.masks, layers=())))
        return run.survey().with_layer(self.masks.layers[0], lifted.survey())

    def predictions(self, query: int | None = None) -> Predictions | None:
        """What the run predicts after the token at `query`, the row's last one unless given; None for a model that
        predicts no next token."""
        if self.model.kind == "encoder" or not self.model.predicts:
            return None
        key = ("predictions", self.key, self.row, query)
        return results.shared().get(key, lambda: self._predictions(query))

    def kept(self, what: Hashable, make: Callable[[], Made]) -> Made:
        """What make() gives, remembered as this view's `what`."""
        key = (what, self.key, self.trace.name, digest(self.masks), self.row)
        return results.shared().get(key, make)

    def _predictions(self, query: int | None) -> Predictions:
        top = self.trace.next_token(self.row, query).topk(TOP)
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        candidates = [Candidate(self.model.label(token), probability) for token, probability in pairs]
        return Predictions(self.trace.losses(self.row).numpy(), candidates)


def shape(model: Model, attention: str) -> tuple[int, int]:
    """How many layers and heads an attention of the model has."""
    found = model.describe()
    heads = found.heads_by_part.get(attention, (found.heads, found.key_value_heads))[0]
    return found.layers[attention], heads


def tokenize(model: Model, text: str, pad_side: str, targets: list[str] | None) -> TokenizedText:
    """The text as the model reads it; remembered, for a model may have written its target itself."""
    whole = repr((text, targets)).encode("utf-8", "backslashreplace")
    key = ("tokens", model.key, hashlib.sha256(whole).digest(), pad_side)
    return results.shared().get(key, lambda: base.tokenize(model, text, pad_side, targets))


def run_pair(
    model: Model, batch: TokenBatch, spec: MaskSpec, row: int, attention: str, *, only_layer: int | None = None
) -> tuple[RunView, RunView]:
    """Now, and under the model's standard masks.

    only_layer: where the masks of spec hold, on the queries and keys of the standard run; None re-runs the model.
    """

    def under(run: MaskSpec, masks: MaskSpec) -> RunView:
        key = ("run", model.key, _key_of(batch), _texts_of(batch) if run.documents else None, digest(run))
        trace = results.shared().get(key, lambda: model.run(batch, run))
        return RunView(model, trace.select(attention), masks, row, key)

    standard = under(model.standard, model.standard)
    if only_layer is None:
        return under(spec, spec), standard
    return under(model.standard, replace(spec, layers=(only_layer,))), standard


def digest(spec: MaskSpec) -> bytes:
    """Stands for a spec in a key: a drawing may be larger than what is remembered under it."""
    return hashlib.sha256(spec.to_json().encode()).digest()


def _texts_of(batch: TokenBatch) -> Hashable:
    """What the documents mask reads: texts of the same ids may have other separators."""
    source = None if batch.source is None else _texts_of(batch.source)
    return batch.texts, batch.ends, source


def _key_of(batch: TokenBatch | None) -> Hashable:
    if batch is None:
        return None
    return batch.ids.shape, batch.ids.numpy().tobytes(), batch.keep.numpy().tobytes(), _key_of(batch.source)
