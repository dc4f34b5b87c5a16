"""What a model is, in the words a page shows."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Description:
    """What was found in a model.

    kind: "decoder", "encoder" or "encoder-decoder". layers: how many each attention has, by its name.
    heads, key_value_heads: those of the attention that is shown first. heads_by_part: both of each attention, by its
    name; may be empty for a model that has one attention.
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
    heads_by_part: dict[str, tuple[int, int]] = field(default_factory=dict)
