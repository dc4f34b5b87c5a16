"""Boolean masks, how they combine, and MaskSpec: what the user asked for. True means "may attend"."""

from dataclasses import dataclass, fields
from functools import reduce

import torch
from torch import Tensor


@dataclass(frozen=True)
class MaskSpec:
    """Which masks are on. A mask that a model does not have (a window, say) stays off whatever this says."""

    causal: bool = True
    padding: bool = True
    window: bool = True


MASK_NAMES = tuple(field.name for field in fields(MaskSpec))


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """[Q,K]: a query sees itself and what came before. With K > Q the queries are the last Q of K positions."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril_(keys - queries)


def padding(keep: Tensor) -> Tensor:
    """keep [B,K] (True = a real token) -> [B,1,1,K]: nobody looks at padding."""
    return keep[:, None, None, :]


def window(queries: int, keys: int, size: int, device: torch.device | None = None) -> Tensor:
    """[Q,K]: the distance |query - key| is less than size (Mistral's sliding window, arXiv:2310.06825)."""
    if size < 1:
        raise ValueError(f"expected a window of at least 1 position, got {size}")
    q = torch.arange(keys - queries, keys, device=device)[:, None]
    k = torch.arange(keys, device=device)[None, :]
    return (q - k).abs() < size


def build(spec: MaskSpec, keep: Tensor, queries: int, *, window_size: int | None = None) -> dict[str, Tensor]:
    """The masks that `spec` turns on, by name, each broadcastable to [B,1,Q,K].

    keep: bool [B,K], True = a real token. A padding mask that blocks nothing is left out, so that a text on its own
    takes the fast path. window_size: the model's native window in positions, None where it has none.
    """
    keys, device = keep.shape[-1], keep.device
    masks: dict[str, Tensor] = {}
    if spec.causal:
        masks["causal"] = causal(queries, keys, device)[None, None]
    if spec.padding and not keep.all():
        masks["padding"] = padding(keep)
    if spec.window and window_size is not None and window_size < keys:
        masks["window"] = window(queries, keys, window_size, device)[None, None]
    return masks


def combine(masks: dict[str, Tensor]) -> Tensor | None:
    """A cell is allowed when every mask allows it. None when there is no mask."""
    return reduce(torch.logical_and, masks.values()) if masks else None
