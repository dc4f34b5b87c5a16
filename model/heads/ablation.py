"""Ablation of heads before the output projection: their outputs become zero, a mean, or those under another mask.

Losses and log-probabilities are natural (nats). Sizes: B rows, T tokens, H heads, Q queries, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.base import HeadEdit, Model
from model.errors import index
from model.heads.view import head_name
from model.masks import MaskSpec
from model.sampling import logits_at
from model.text import TokenBatch
from model.trace import LayerRecord, Trace

AblationMethod = Literal["zero", "mean", "mask"]
Head = tuple[int, int]  # layer, head
TOP = 10


@dataclass(frozen=True)
class AblatedHeads:
    """The heads to ablate, and how. heads: (layer, head) each, of one of a model's attentions. way: "zero": output 0;
    "mean": at every position the mean of their outputs over the row's real tokens, later ones too; "mask": their
    outputs under `mask`."""

    heads: tuple[Head, ...]
    way: AblationMethod = "zero"
    mask: MaskSpec | None = None
    attention: str = "self"

    def __post_init__(self) -> None:
        if self.way not in get_args(AblationMethod) or not isinstance(self.mask, MaskSpec | None):
            ways, got = ", ".join(get_args(AblationMethod)), f"{self.way!r:.40} and {type(self.mask).__name__}"
            raise ValueError(f"expected a way out of {ways}, and a MaskSpec or None, got {got}")  # not shown
        if (self.way == "mask") != (self.mask is not None):
            why = f'expected a mask with the way "mask" alone, got {self.way!r} and {self.mask}'  # not shown
            raise ValueError(why)


@dataclass(frozen=True, eq=False)
class TargetPrediction:
    """The target token after one query, its label, and the log_probability that a run gives it there."""

    target: int
    label: str
    log_probability: float


@dataclass(frozen=True, eq=False)
class AblationOutcome(TargetPrediction):
    """The predictions of a run with ablated heads for one row. losses: [T] nats, NaN at padding and the row's first
    token. candidates: the most likely next tokens after the query, label and probability (0 to 1)."""

    losses: np.ndarray
    candidates: tuple[tuple[str, float], ...]


def next_token_id(batch: TokenBatch, row: int, query: int) -> int | None:
    """Return the id that follows the query in the row; None at the row's end, at padding, and before an image token."""
    real = batch.real(row)
    if not real.start <= query < real.stop - 1 or batch.distinct_ids(row)[query + 1] < 0:
        return None
    return int(batch.ids[row, query + 1])


@torch.inference_mode()
def answer(model: Model, trace: Trace, row: int, query: int, target: int | None = None) -> TargetPrediction:
    """Return the prediction of a run without ablation. target: the target token, the most likely unless given."""
    return _answer(model, logits_at(trace, row, query).log_softmax(-1), target)


@torch.inference_mode()
def outcome(
    model: Model, batch: TokenBatch, spec: MaskSpec, row: int, query: int, off: AblatedHeads, target: int | None = None
) -> AblationOutcome:
    """Run one row under spec with these heads ablated (none: unchanged). target: the target token after the query, the
    most likely of this run unless given. Raises ValueError for a head that does not exist."""
    alone, found = batch.rows([row]), model.describe()
    layers, heads = found.shape(off.attention) if off.attention in found.layers else (0, 0)
    for layer, head in off.heads:
        if not (0 <= layer < layers and 0 <= head < heads):
            template = N_("expected heads of the {layers} × {heads} of attention {attention!r}, got {head}")
            got = {"attention": off.attention, "head": head_name(layer, head)}
            raise ValueError(msg(template, layers=layers, heads=heads, **got))
    trace = model.run(alone, spec, _edit(off, alone, [off.heads]) if off.heads else None)
    logs = logits_at(trace, 0, query).log_softmax(-1)
    prediction, candidates = _answer(model, logs, target), model.ranked(logs.exp(), TOP)
    return AblationOutcome(**vars(prediction), losses=trace.losses().numpy(), candidates=candidates)


def _answer(model: Model, logs: Tensor, target: int | None) -> TargetPrediction:
    target = int(logs.argmax()) if target is None else index("target", target, len(logs))
    return TargetPrediction(target, model.label(target), float(logs[target]))


@torch.inference_mode()
def layer_effects(
    model: Model, batch: TokenBatch, spec: MaskSpec, row: int, query: int, target: int, layer: int, way: AblatedHeads
) -> np.ndarray:
    """Return by how many nats the loss of target after the query rises with each head of a layer ablated alone: float32
    [H]. way: how they are ablated. The heads are rows of one batch, as many at a time as the model takes."""
    alone, (_, heads) = batch.rows([row]), model.describe().shape(way.attention)
    before = _log_probability(model, model.run(alone, spec).states[:, query], target)  # [1]
    step = max(model.most_cells // alone.ids.shape[1], 1)
    after = []
    for begin in range(0, heads, step):
        each = [((layer, head),) for head in range(begin, min(begin + step, heads))]
        trace = model.run(alone.rows([0] * len(each)), spec, _edit(way, alone, each))
        after.append(_log_probability(model, trace.states[:, query], target))
    return (before - torch.cat(after)).numpy()


def _log_probability(model: Model, states: Tensor, target: int) -> Tensor:
    return model.readout(states).float().log_softmax(-1)[:, target].cpu()


def _edit(off: AblatedHeads, alone: TokenBatch, each: Sequence[Sequence[Head]]) -> HeadEdit:
    """Return the edit that ablates heads. alone: the row. each: the heads to ablate in each row of a batch of it."""
    queries = alone.source if off.attention == "encoder" and alone.source is not None else alone
    keep = queries.keep[0]

    def edit(attention: str, layer: int, record: LayerRecord, output: Tensor) -> Tensor:
        """output [B,H,Q,D]"""
        here = [(row, head) for row, heads in enumerate(each) for at, head in heads if at == layer]
        if attention != off.attention or not here:
            return output
        output = output.clone()
        for row, head in here:
            one = output[row, head]
            if off.mask is not None:
                stages = record.stages(off.mask, row, slice(head, head + 1), slice(0, output.shape[2]))
                one.copy_(stages.output[0])
            elif off.way == "mean":
                one.copy_(one[keep.to(one.device)].mean(0))
            else:
                one.zero_()
        return output

    return edit
