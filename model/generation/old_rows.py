"""What a new token does to the rows above it: nothing under the causal mask, and without it nearly everything.

A cache keeps the keys and values of earlier positions, so it is right only where those do not change.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from i18n import say
from model.base import Model
from model.kv_cache import batch_of
from model.masks import MaskSpec


@dataclass(frozen=True, eq=False)
class OldRows:
    """The T-1 old rows of a text, in a run without its newest token and in one with it: the largest differences.

    rows [T-1]: in any head's weights of that row, the newest token's column included. weights [L]: that by layer.
    kept [L]: in the keys and values, which a cache holds. logits [T-1]: of each old position.
    """

    rows: Tensor
    weights: Tensor
    kept: Tensor
    logits: Tensor

    def nbytes(self) -> int:
        """The memory it takes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in vars(self).values())


@torch.inference_mode()
def old_rows(model: Model, ids: tuple[int, ...], spec: MaskSpec) -> OldRows:
    """Run ids without and with the last one, and compare. Raises ValueError for fewer than two."""
    if len(ids) < 2:
        raise ValueError(say("expected at least 2 tokens, got {count}", count=len(ids)))
    old = slice(0, len(ids) - 1)
    before, after = model.run(batch_of(model, ids[:-1]), spec), model.run(batch_of(model, ids), spec)
    rows, kept = [], []
    for one, other in zip(before.layers, after.layers, strict=True):
        now = other.weights(spec, 0, old)  # [H,T-1,T]
        then = torch.nn.functional.pad(one.weights(spec, 0, old), (0, 1))
        rows.append((now - then).abs().amax((0, 2)).cpu())
        kept.append(max(_largest(other.k[:, :, old] - one.k), _largest(other.v[:, :, old] - one.v)))
    by_layer = torch.stack(rows)  # [L,T-1]
    logits = model.readout(after.states[0, old]) - model.readout(before.states[0])
    return OldRows(by_layer.amax(0), by_layer.amax(1), torch.tensor(kept), logits.float().abs().amax(-1).cpu())


def _largest(difference: Tensor) -> float:
    return float(difference.float().abs().max())
