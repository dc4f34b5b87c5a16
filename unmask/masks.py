"""The masks of a run, as its caller gives them."""

import json
from typing import Any

from model.inference.cost import SPLIT
from model.masks import MaskSpec
from model.text import TokenBatch


def spec_of(
    standard: MaskSpec,
    masks: MaskSpec | dict[str, Any] | None,
    *,
    causal: bool | None = None,
    padding: bool | None = None,
) -> MaskSpec:
    """Return the masks that the arguments select. Raises ValueError for unknown fields and invalid values."""
    if isinstance(masks, dict):
        spec = MaskSpec.from_fields(json.loads(standard.to_json()) | masks)
    elif masks is None or isinstance(masks, MaskSpec):
        spec = masks or standard
    else:
        hint = ": unmask.name_mask(…).masks gives those of a mask [T,T]" if hasattr(masks, "shape") else ""
        raise ValueError(f"expected masks as a MaskSpec or a dict of its fields, got {type(masks).__name__}{hint}")
    switches = {name: on for name, on in (("causal", causal), ("padding", padding)) if on is not None}
    return MaskSpec.from_fields(json.loads(spec.to_json()) | switches) if switches else spec


def expect_text(spec: MaskSpec, batch: TokenBatch) -> None:
    """Check a mask that splits a text. Raises ValueError if the tokens were not read from a text."""
    if getattr(spec, SPLIT, "") and not (batch.source or batch).texts:
        raise ValueError(f"expected a text for the mask {SPLIT!r}, which splits it, got ids, pixels or an image")
