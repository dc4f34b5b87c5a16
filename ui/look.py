"""What the reader looks at: one row and one head of a batch, under the chosen and under the standard masks."""

from dataclasses import dataclass

import numpy as np
import torch

from model import measures
from model.catalog import Model
from model.masks import MaskSpec
from model.text import TokenBatch
from model.trace import Trace
from ui import models
from viz.numbers import TOP, Candidate, Leak
from viz.overview import blocked_thumbnail, thumbnail_size
from viz.view import HeadView


@dataclass(frozen=True, eq=False)
class Look:
    """A run, and the masks its weights are shown under: the run's own, or others on this layer only."""

    trace: Trace
    masks: MaskSpec
    row: int

    def head(self, layer: int, head: int) -> HeadView:
        """The head as arrays to draw."""
        stages = self.trace.stages(layer, head, self.row, self.masks)
        pieces = list(self.trace.batch.pieces[self.row])
        blocked = self.trace.blocked_by(layer, self.row, self.masks)
        return HeadView(
            stages.weights.numpy(),
            stages.scaled.numpy(),
            {name: mask.numpy() for name, mask in blocked.items()},
            pieces,
            pieces,
        )

    def thumbnails(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights float32 [L,H,S,S] and wholly blocked patches bool [L,S,S]."""
        trace = self.trace
        size = thumbnail_size(trace.num_layers, trace.num_heads)
        weights = trace.overview(self.row, size, self.masks).numpy()
        layers = range(trace.num_layers)
        blocked = [~trace.allowed(layer, self.row, self.masks).numpy() for layer in layers]
        return weights, np.stack([blocked_thumbnail(mask, *weights.shape[2:]) for mask in blocked])

    def leaks(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Shares of attention on later tokens [L,H] and on padding [L,H]."""
        return measures.leak_by_head(self.trace, self.row, self.masks)


def looks(model: Model, batch: TokenBatch, spec: MaskSpec, scope: str, row: int) -> tuple[Look, Look]:
    """Now, and under the model's standard masks. scope "model" re-runs the model, "layer" keeps its standard run."""
    standard = models.run(model, batch, model.standard)
    run = standard if scope == "layer" or spec == model.standard else models.run(model, batch, spec)
    return Look(run, spec, row), Look(standard, model.standard, row)


def leak_pairs(now: Look, standard: Look, layer: int, head: int) -> tuple[tuple[Leak, Leak], tuple[Leak, Leak]]:
    """(now, standard) for the chosen head, and the same for the mean of all heads."""
    shares = [look.leaks() for look in (now, standard)]
    one = tuple(Leak(float(future[layer, head]), float(padding[layer, head])) for future, padding in shares)
    mean = tuple(Leak(float(future.nanmean()), float(padding.nanmean())) for future, padding in shares)
    return one, mean  # type: ignore[return-value]  # tuple() of two is not known to have two


def losses(now: Look, standard: Look) -> tuple[np.ndarray, np.ndarray]:
    """Loss per token in nats [T] under either masks."""
    return now.trace.losses(now.row).numpy(), standard.trace.losses(standard.row).numpy()


def candidates(model: Model, look: Look) -> list[Candidate]:
    """The likeliest next tokens after the row."""
    top = look.trace.next_token(look.row).topk(TOP)
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [Candidate(model.label(token), probability) for token, probability in pairs]
