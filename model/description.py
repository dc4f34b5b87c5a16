"""What a model is, in the words a page shows."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Description:
    """What was found in a model.

    kind: "decoder", "encoder" or "encoder-decoder". layers: how many each attention has, by its name.
    context: the positions it was made for (a page may allow fewer). masks: those it has natively.
    window: its sliding window in positions, or None; windowed: how many layers have it.
    """

    architecture: str
    kind: str
    layers: dict[str, int]
    heads: int
    key_value_heads: int
    context: int
    masks: tuple[str, ...]
    window: int | None = None
    windowed: int = 0
    parameters: int = 0
