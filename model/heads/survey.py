"""All heads of one row of a run at a glance, in one pass over their weights: thumbnails, and shares of attention.

Sizes: L layers, H heads, Q queries, K keys, S and S' the sides of a thumbnail.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from model.heads.patterns import HABITS, HeadPatternScores
from model.mask_kinds import KINDS
from model.masks import MaskSpec
from model.trace import Thumbnails, Trace

MOST_PIXELS = 589_824  # of all thumbnails together: 12 × 12 heads of 64 × 64
LARGEST, SMALLEST = 64, 4  # sides of a thumbnail


@dataclass(frozen=True, eq=False)
class Survey:
    """thumbnails: float32 [L,H,S,S'], the largest weight of each patch. blocked: bool [L,S,S'], patches that are
    blocked as a whole. future, padding: float32 [L,H], shares of attention (0 to 1) on later tokens and on padding,
    means over the row's real queries that look at something; NaN where there is no later and earlier. habits: float32
    [L,H,M], see habits.py.
    """

    thumbnails: np.ndarray
    blocked: np.ndarray
    future: np.ndarray
    padding: np.ndarray
    habits: np.ndarray

    def with_layer(self, layer: int, other: "Survey") -> "Survey":
        """This survey, but for one layer, which is the other's."""
        one = np.arange(len(self.future)) == layer
        pick = {
            field.name: np.where(
                one.reshape(-1, *(1,) * (getattr(self, field.name).ndim - 1)),
                getattr(other, field.name),
                getattr(self, field.name),
            )
            for field in fields(self)
        }
        return Survey(**pick)

    def measures(self) -> dict[str, np.ndarray]:
        """Each share of attention by its name, float32 [L,H]: the habits, and "future" and "padding"."""
        named = {name: self.habits[..., place] for place, name in enumerate(HABITS)}
        return named | {"future": self.future, "padding": self.padding}

    def nbytes(self) -> int:
        """The memory it takes, in bytes."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))


def thumbnail_size(layers: int, heads: int) -> int:
    """The widest thumbnail that MOST_PIXELS allow when there are this many heads."""
    return max(min(LARGEST, int((MOST_PIXELS / (layers * heads)) ** 0.5)), SMALLEST)


@torch.inference_mode()
def survey(trace: Trace, row: int = 0, masks: MaskSpec | None = None) -> Survey:
    """Every head of a row under the run's masks, or (same queries and keys) under others.

    A block of queries at a time: it needs memory for one block of weights, never for Q × K of a layer.
    """
    thumbnails = Thumbnails(trace, thumbnail_size(trace.num_layers, trace.num_heads))
    shares = LeakTotals(trace, row, masks or trace.spec)
    habits = HeadPatternScores(trace, row)
    for layer, some, weights in trace.blocks(row, masks):
        looks = weights.amax(-1) > 0  # [H, queries]: rows that look at something
        thumbnails.add(layer, some, weights)
        shares.add(layer, some, weights, looks)
        habits.add(layer, some, weights, looks)
    future, padding = shares.means()
    blocked = _blocked(trace, row, masks, *thumbnails.result.shape[2:])
    return Survey(thumbnails.result.numpy(), blocked, future.numpy(), padding.numpy(), habits.means().numpy())


class LeakTotals:
    """The shares of attention on later tokens and on padding, of every head, gathered block by block.

    They do not overlap: padding that comes later counts as padding.
    """

    def __init__(self, trace: Trace, row: int, masks: MaskSpec) -> None:
        self._trace, self._row = trace, row
        opened = any(KINDS[name].opens for name in masks.on()) or masks.drawn or masks.layers or masks.heads
        self._never_later = masks.causal and not opened  # all later cells are exactly 0: nothing to add up
        self._sums = torch.zeros(3, trace.num_layers, trace.num_heads)  # future, padding, rows that look at something

    def add(self, layer: int, queries: slice, weights: Tensor, looks: Tensor) -> None:
        """weights [H, queries, K]; looks: bool [H, queries], the rows that look at something."""
        context = self._trace.layers[layer].context
        keep = context.keep[self._row].to(weights.device)
        real = self._trace.queries.keep[self._row, queries].to(weights.device)
        on_later = on_padding = weights.new_zeros(weights.shape[:2])  # [H, queries]
        if "causal" not in context.available:
            on_later = torch.full_like(on_later, torch.nan)
        elif not self._never_later:
            begin = queries.start + 1  # columns before are later for none of them
            position = torch.arange(queries.start, queries.stop, device=weights.device)[:, None]
            later = (torch.arange(begin, len(keep), device=weights.device) > position) & keep[begin:]
            on_later = (weights[..., begin:] * later).sum(-1)
        if not keep.all():
            on_padding = weights @ (~keep).to(weights.dtype)
        seen = looks.to(weights.dtype)
        self._sums[:, layer] += torch.stack([on_later, on_padding, seen])[..., real].sum(-1).cpu()

    def means(self) -> tuple[Tensor, Tensor]:
        """Over the row's real queries that look at something: [L,H] each."""
        future, padding, rows = self._sums
        return future / rows, padding / rows


def blocked_thumbnail(blocked: np.ndarray, tall: int, wide: int) -> np.ndarray:
    """bool [Q,K] -> bool [tall,wide]: True where all of a patch is blocked.

    Patches as torch's adaptive pooling cuts them: patch i of n over Q cells goes from floor(i·Q/n) to ceil((i+1)·Q/n).
    """
    rows = np.stack([blocked[begin:end].all(0) for begin, end in _edges(blocked.shape[0], tall)])
    return np.stack([rows[:, begin:end].all(1) for begin, end in _edges(blocked.shape[1], wide)], axis=1)


def _blocked(trace: Trace, row: int, masks: MaskSpec | None, tall: int, wide: int) -> np.ndarray:
    """[L,tall,wide]; layers under the same masks share the work."""
    made: dict[bytes, np.ndarray] = {}
    every = []
    for layer in range(trace.num_layers):
        allowed = trace.allowed(layer, row, masks)
        key = np.packbits(allowed.numpy()).tobytes()
        if key not in made:
            made[key] = blocked_thumbnail(~allowed.numpy(), tall, wide)
        every.append(made[key])
    return np.stack(every)


def _edges(cells: int, parts: int) -> list[tuple[int, int]]:
    return [(part * cells // parts, -(-(part + 1) * cells // parts)) for part in range(parts)]
