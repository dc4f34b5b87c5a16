"""The data of the pictures in a lesson's step, computed from its run."""

import numpy as np

from model.base import Model
from model.heads.vectors import HeadVectors, embeddings, head_vectors
from model.trace import Trace

MAX_NEXT = 10


PictureData = np.ndarray | list[tuple[str, float]] | HeadVectors


def picture_data(model: Model, trace: Trace, show: str, row: int, layer: int, head: int, query: int) -> PictureData:
    """Return float32 [T,W] for "embedding", the likeliest next tokens for "logits", else the vectors of one head.

    show: as in a step. Raises what the model raises if it does not have these.
    """
    if show == "embedding":
        return embeddings(model, trace, row)
    if show == "logits":
        here = query if trace.queries is trace.batch else None  # if another text's tokens attend: after the last
        return list(model.ranked(trace.next_token(row, here), MAX_NEXT))
    return head_vectors(trace, row, layer, head)
