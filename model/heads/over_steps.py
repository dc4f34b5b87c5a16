"""What a run measures at one checkpoint of a training: its loss and what each of its heads does."""

from dataclasses import dataclass

import numpy as np
import torch

from model.heads.survey import AttentionShares
from model.masks import MaskSpec
from model.trace import Trace


@dataclass(frozen=True, eq=False)
class StepMeasures:
    """loss: the mean over the row's tokens in nats, NaN where none is predicted. shares: by survey.SHARES, float32
    [L,H], 0 to 1, see AttentionShares."""

    loss: float
    shares: dict[str, np.ndarray]


@torch.inference_mode()
def step_measures(trace: Trace, row: int, masks: MaskSpec, predicts: bool) -> StepMeasures:
    """Of a row of a run. predicts: whether its logits are of next tokens."""
    shares = AttentionShares(trace, row, masks)
    for layer, some, weights in trace.blocks(row, masks):
        shares.add(layer, some, weights.cpu())
    loss = float(trace.losses(row).nanmean()) if predicts else float("nan")
    return StepMeasures(loss, shares.means())
