"""A network's own masks, recognised from transformers' mask functions or from what is added to the scores.

Sizes: B rows, H heads, Q queries, K keys.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from i18n import N_, msg
from model.errors import NotSupported
from model.mask_kinds import KINDS, OF_IMAGES, Cells
from model.masks import MaskContext
from model.spec import MaskSpec

FAR_POSITIONS = 64
AS_GOOD_AS_BLOCKED = -9999.0  # what networks add to a score to block it is at most this; a bias is more
EDGES = re.compile(r"window|chunk|local|block|radius|stride|top_?k|budget|landmark|segment")
OWN_MASK = N_("its mask is neither causal nor a sliding window nor chunks")


@dataclass(frozen=True)
class NativeMask:
    """The masks of one attention, without padding. sizes: (kind, positions)."""

    causal: bool
    sizes: tuple[tuple[str, int], ...] = ()

    def cells(self, positions: Tensor) -> Tensor:
        """bool [S,S], True = may attend, at these increasing positions of a text without padding."""
        query, key = positions[None, None, :, None], positions[None, None, None]
        cells = Cells(query, key, query, key, int(positions[-1]) + 1)
        allowed = torch.ones(len(positions), len(positions), dtype=torch.bool)
        for name, size in ((("causal", 0),) if self.causal else ()) + self.sizes:
            mask = KINDS[name].cells(cells, size)
            allowed = allowed if mask is None else allowed & mask[0, 0]
        return allowed

    def over(self, keep: Tensor, queries: int) -> Tensor:
        """bool, broadcastable to [B,1,Q,K]: with padding, keep [B,K]."""
        context = MaskContext(keep, queries, 1, sizes=dict(self.sizes))
        allowed = context.allowed(MaskSpec(causal=self.causal))
        return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=keep.device) if allowed is None else allowed


def edges_of(config: PreTrainedConfig) -> tuple[int, ...]:
    """The lengths of windows, chunks and blocks in a configuration."""
    found = set()

    def visit(data: Any, name: str = "") -> None:
        if isinstance(data, dict | list | tuple):
            for key, value in data.items() if isinstance(data, dict) else ((name, value) for value in data):
                visit(value, str(key))
        elif type(data) is int and 1 < data < 10**6 and EDGES.search(name):
            found.add(data)

    visit(config.get_text_config().to_dict())
    return tuple(sorted(found))


def far_positions(edges: tuple[int, ...], context: int) -> Tensor:
    """Positions from 0 to the end of the context, dense at the start and on both sides of every edge."""
    near = [edge + step for edge in (4, *_sizes(edges)) for step in range(-4, 4)]
    spread = torch.linspace(0, context - 1, FAR_POSITIONS).long().tolist()
    return torch.tensor(sorted({position for position in (*near, *spread) if 0 <= position < context}))


def of_function(
    mask_function: Callable[..., Any], tokens: int, edges: tuple[int, ...], far: Tensor
) -> NativeMask | None:
    """The mask of transformers' function of (row, head, query, key), None for an unknown kind. It is compared at the
    far positions, so that a pass over a few tokens finds a window of thousands."""
    for positions in (far, torch.arange(tokens)):
        try:
            native = _asked(mask_function, positions)
        except IndexError:  # it looks something up for each token of the text
            continue
        for candidate in _candidates(edges):
            if torch.equal(native, candidate.cells(positions)):
                return candidate
    return None


def _asked(mask_function: Callable[..., Any], positions: Tensor) -> Tensor:
    zero = torch.zeros(1, 1, 1, 1, dtype=torch.long)
    found = mask_function(zero, zero, positions[None, None, :, None], positions[None, None, None, :])
    return torch.as_tensor(found).expand(1, 1, len(positions), len(positions))[0, 0]


def image_groups(
    mask_function: Callable[..., Any], native: NativeMask, groups: Sequence[Tensor]
) -> tuple[NativeMask, Tensor | None]:
    """The mask of a row with an image in it, by transformers' function: as on text, or besides some tokens see each
    other, one of `groups`, int64 [T] each, -1 outside. Raises NotSupported for another one."""
    positions = torch.arange(len(groups[0]))
    found = _asked(mask_function, positions).cpu()
    if torch.equal(found, native.cells(positions)):
        return native, None
    for size in (len(positions), *dict(native.sizes).values()):  # anywhere in the image, or within a window
        wider = replace(native, sizes=(*native.sizes, (OF_IMAGES, size)))
        for group in groups:
            context = MaskContext(torch.ones(1, len(positions), dtype=torch.bool), len(positions), 1,
                                  sizes=dict(wider.sizes), groups=group[None])  # fmt: skip
            if torch.equal(found, context.allowed_in_row(MaskSpec(causal=native.causal), 0)):
                return wider, group[None]
    raise NotSupported(msg(OWN_MASK))


def of_cells(blocked: Tensor, keep: Tensor, real: Tensor, edges: tuple[int, ...]) -> NativeMask:
    """The mask that blocks these cells [B,1 or H,Q,K] of a batch with keep [B,K], at its real queries [B,Q].

    Raises NotSupported for an unknown kind.
    """
    for candidate in _candidates(edges):
        if not differs(blocked, ~candidate.over(keep, blocked.shape[-2]), real):
            return candidate
    raise NotSupported(msg(OWN_MASK))


def differs(one: Tensor, other: Tensor, real: Tensor) -> bool:
    """Whether two masks [B,1 or H,Q,K] differ at the real queries [B,Q]."""
    return bool(((one ^ other) & real[:, None, :, None]).any())


def split(added: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """What is added to the scores -> the cells that it blocks (bool) and the remaining bias; None for none."""
    if added.dtype == torch.bool:
        return (None, None) if bool(added.all()) else (~added, None)
    blocked = added <= AS_GOOD_AS_BLOCKED
    masks = bool(blocked.any())
    bias = added.masked_fill(blocked, 0.0) if masks else added
    return blocked if masks else None, bias if bool(bias.any()) else None


def _candidates(edges: tuple[int, ...]) -> Iterator[NativeMask]:
    sized = [name for name, kind in KINDS.items() if kind.sized]
    for causal in (True, False):
        yield NativeMask(causal)
        yield from (NativeMask(causal, ((name, size),)) for size in _sizes(edges) for name in sized)


def _sizes(edges: tuple[int, ...]) -> list[int]:
    """The edges, as inclusive and exclusive distances, whole or half on each side."""
    return sorted({size for edge in edges for size in (edge, edge + 1, edge // 2, edge // 2 + 1) if size > 0})
