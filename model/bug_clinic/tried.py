"""An attention tried on a case: what several laws ask of it is computed once.

Sizes: B rows, H heads, T positions, D head width.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from model.attention import AttentionStages
from model.bug_clinic.case import Attention, AttentionCase

TOKENS_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class Tried:
    """The pair. Whatever it computes raises Crash where PyTorch refuses."""

    attention: Attention
    case: AttentionCase

    @cached_property
    def stages(self) -> AttentionStages:
        """The attention on the case as it is."""
        return self.case.run(self.attention)

    def output(self, case: AttentionCase) -> Tensor:
        """[B,H,T,D]: the attention on another case."""
        return case.run(self.attention).output

    @cached_property
    def moved(self) -> Tensor:
        """[B,T,T]: how far the output of the last axis' position moves when the real token of the middle one's is
        changed, at most over its heads; infinite where it is no finite number, 0 for what is no real token."""
        size = self.case.allowed.shape[-1]
        moved = torch.zeros(len(self.case.keep), size, size)
        for row, keep in enumerate(self.case.keep):
            real = self.case.real(row)
            for some in torch.arange(real.start, real.stop).split(TOKENS_AT_ONCE):
                copies = torch.arange(len(some))
                changed = self.case.copies(row, len(some) + 1).turned((copies, slice(None), some))
                outputs = self.output(changed)  # the last copy is unchanged
                change = (outputs[:-1] - outputs[-1:]).float().abs().nan_to_num(math.inf, math.inf)  # [N,H,T,D]
                moved[row, some] = change.amax((1, 3)).masked_fill(~keep, 0.0)
        return moved
