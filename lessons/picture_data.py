"""What the pictures of a lesson's step are drawn from, as plain arrays, computed from its run."""

from dataclasses import dataclass

import numpy as np

from model.base import Model
from model.heads.vectors import HeadVectors, embeddings, head_vectors
from model.sampling import NextTokens, next_tokens
from model.trace import Trace

MOST_NEXT = 10


@dataclass(frozen=True, eq=False)
class PictureData:
    """embedding: float32 [T,W]; head: the vectors of one head; next: the likeliest tokens after the query, with labels.
    Those that a picture has no use for are None."""

    embedding: np.ndarray | None = None
    head: HeadVectors | None = None
    next: list[tuple[str, float]] | None = None


def picture_data(model: Model, trace: Trace, show: str, row: int, layer: int, head: int, query: int) -> PictureData:
    """show: as in a step. Raises what the parts of the model raise that do not have it."""
    if show == "embedding":
        return PictureData(embedding=embeddings(model, trace, row))
    if show == "logits":
        found: NextTokens = next_tokens(trace, row, query, MOST_NEXT)
        pairs = zip(found.tokens.tolist(), found.probabilities.tolist(), strict=True)
        return PictureData(next=[(model.label(token), chance) for token, chance in pairs])
    return PictureData(head=head_vectors(trace, row, layer, head))
