"""What the reader looks at: one row of a batch, under the chosen and under the standard masks."""

import hashlib
from collections.abc import Hashable
from dataclasses import astuple, dataclass, replace

import numpy as np
from torch import Tensor

from model import base
from model.base import Model, TokenizedText
from model.heads import measures
from model.masks import MaskSpec, places
from model.text import TokenBatch
from model.trace import Trace
from ui import results
from viz.mask_lab.canvas import MaskView
from viz.numbers import TOP, Candidate, Leak
from viz.overview import blocked_thumbnail, thumbnail_size
from viz.view import HeadView


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a run predicts for one row: nats [T], NaN where there is none, and the likeliest next tokens."""

    losses: np.ndarray
    candidates: list[Candidate]

    def nbytes(self) -> int:
        """The memory it takes, in bytes."""
        return self.losses.nbytes


@dataclass(frozen=True, eq=False)
class Survey:
    """The weights of all heads of one row.

    thumbnails: float32 [L,H,S,S]. blocked: bool [L,S,S], patches that are blocked as a whole. future, padding: [L,H],
    shares of attention (0 to 1) on later tokens and on padding.
    """

    thumbnails: np.ndarray
    blocked: np.ndarray
    future: np.ndarray
    padding: np.ndarray

    def leak(self, layer: int, head: int) -> Leak:
        """One head's shares."""
        return Leak(float(self.future[layer, head]), float(self.padding[layer, head]))

    def mean_leak(self) -> Leak:
        """The mean of all heads' shares."""
        return Leak(float(self.future.mean()), float(self.padding.mean()))

    def nbytes(self) -> int:
        """The memory it takes, in bytes."""
        return self.thumbnails.nbytes + self.blocked.nbytes


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
        """All heads at once; remembered, so that choosing another head repeats nothing."""
        key = ("survey", self.key, self.trace.name, _digest(self.masks), self.row)
        return results.shared().get(key, self._survey)

    def predictions(self) -> Predictions | None:
        """What the run predicts, remembered too; None for a model that predicts no next token."""
        if self.model.kind == "encoder" or not self.model.predicts:
            return None
        return results.shared().get(("predictions", self.key, self.row), self._predictions)

    def _survey(self) -> Survey:
        trace = self.trace
        size = thumbnail_size(trace.num_layers, trace.num_heads)
        thumbnails = trace.overview(self.row, size, self.masks).numpy()
        small = np.stack([self._blocked(layer, *thumbnails.shape[2:]) for layer in range(trace.num_layers)])
        future, padding = measures.leak_by_head(trace, self.row, self.masks)
        return Survey(thumbnails, small, future.numpy(), padding.numpy())

    def _blocked(self, layer: int, tall: int, wide: int) -> np.ndarray:
        return blocked_thumbnail(~self.trace.allowed(layer, self.row, self.masks).numpy(), tall, wide)

    def _predictions(self) -> Predictions:
        top = self.trace.next_token(self.row).topk(TOP)
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        candidates = [Candidate(self.model.label(token), probability) for token, probability in pairs]
        return Predictions(self.trace.losses(self.row).numpy(), candidates)


def shape(model: Model, attention: str) -> tuple[int, int]:
    """How many layers and heads an attention of the model has."""
    found = model.describe()
    heads = found.heads_by_part.get(attention, (found.heads, found.key_value_heads))[0]
    return found.layers[attention], heads


def read(model: Model, text: str, pad_side: str, targets: list[str] | None) -> TokenizedText:
    """The text as the model reads it; remembered, for a model may have written its target itself."""
    whole = "\0".join([text, *(targets or [])])
    key = ("reading", model.key, hashlib.sha256(whole.encode("utf-8", "replace")).digest(), pad_side, targets is None)
    return results.shared().get(key, lambda: base.tokenize(model, text, pad_side, targets))


def run_pair(
    model: Model, batch: TokenBatch, spec: MaskSpec, scope: str, row: int, attention: str
) -> tuple[RunView, RunView]:
    """Now, and under the model's standard masks. scope "model" re-runs the model, "layer" keeps its standard run."""

    def under(run: MaskSpec, masks: MaskSpec) -> RunView:
        key = ("run", model.key, _key_of(batch), _texts_of(batch) if run.documents else None, _digest(run))
        # what is remembered holds no model: a model that leaves the memory of models must be free to go
        kept = results.shared().get(key, lambda: replace(model.run(batch, run), readout=_of_no_model))
        return RunView(model, replace(kept, readout=model.readout).select(attention), masks, row, key)

    return under(model.standard if scope == "layer" else spec, spec), under(model.standard, model.standard)


def _of_no_model(states: Tensor) -> Tensor:
    raise NotImplementedError("expected a trace with its model's readout")


def _digest(spec: MaskSpec) -> bytes:
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
