"""Each text run by itself: what padded batches are compared with."""

from collections.abc import Sequence

from model.base import Model
from model.padding import spec_alone
from model.trace import Trace


def runs_alone(model: Model, texts: Sequence[str], causal: bool) -> list[Trace]:
    return [model.run(model.encode([text]), spec_alone(causal)) for text in texts]
