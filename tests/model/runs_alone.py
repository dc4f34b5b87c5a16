"""Runs of each text alone, as references for padded batches."""

from collections.abc import Sequence

from model.base import Model
from model.masks import MaskSpec
from model.trace import Trace


def runs_alone(model: Model, texts: Sequence[str], causal: bool) -> list[Trace]:
    return [model.run(model.encode([text]), MaskSpec(causal=causal)) for text in texts]
