"""Where each token stands: positions counted over real tokens, and positions as sines and cosines."""

import torch
from torch import Tensor

from model.spec import MaskSpec
from model.text import TokenBatch

LONGEST_WAVE = 10_000.0


def positions_of(keep: Tensor) -> Tensor:
    """keep bool [B,T] -> positions [B,T]: counted over real tokens, so that left padding shifts no position."""
    return (keep.long().cumsum(-1) - 1).clamp(min=0)


def positions_under(spec: MaskSpec, batch: TokenBatch) -> Tensor:
    """The positions [B,T] that a spec asks for: of real tokens, of all cells, or anew in each part of the text."""
    counted = positions_of(batch.keep)
    if spec.positions == "cells":
        return torch.arange(batch.ids.shape[1]).expand_as(counted)
    separator = getattr(spec, spec.positions, "")
    if separator:
        number = batch.split(separator)
        none = torch.full((len(counted), int(number.max()) + 1), batch.ids.shape[1])
        first = none.scatter_reduce(-1, number, counted, "amin")
        return counted - first.gather(-1, number)
    return counted


def sinusoids(positions: int, width: int) -> Tensor:
    """[positions, width]: sines in the even columns, cosines in the odd ones (Vaswani et al. 2017, section 3.5).

    Wavelengths run from 2π to 10,000·2π. Raises ValueError for an odd width.
    """
    if width % 2:
        raise ValueError(f"expected an even width for sines and cosines, got {width}")
    frequencies = LONGEST_WAVE ** -(torch.arange(0, width, 2) / width)
    angles = torch.arange(positions)[:, None] * frequencies  # [positions, width/2]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
