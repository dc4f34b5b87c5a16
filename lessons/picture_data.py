"""What the pictures of a lesson's step are drawn from, computed from its run."""

import numpy as np

from model.base import Model
from model.heads.vectors import HeadVectors, embeddings, head_vectors
from model.trace import Trace

MAX_NEXT = 10


PictureData = np.ndarray | list[tuple[str, float]] | HeadVectors


def picture_data(model: Model, trace: Trace, show: str, row: int, layer: int, head: int, query: int) -> PictureData:
    """For "embedding" float32 [T,W], for "logits" the likeliest tokens after the query, else the vectors of one head.

    show: as in a step. Raises what the parts of the model raise that do not have it.
    """
    if show == "embedding":
        return embeddings(model, trace, row)
    if show == "logits":
        here = query if trace.queries is trace.batch else None  # where another text's tokens look: after the last
        return list(model.ranked(trace.next_token(row, here), MAX_NEXT))
    return head_vectors(trace, row, layer, head)
