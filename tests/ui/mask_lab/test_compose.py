"""Masks in a link: a drawing is included as long as it fits, all other masks always."""

from urllib.parse import quote

import pytest

from model.masks import MaskSpec
from model.spec import Stroke
from ui import link
from ui.mask_lab import compose


@pytest.mark.parametrize("kind", ["open", "block", "erase"])
@pytest.mark.parametrize("count", [1, 100, 150, 230, 5000])
def test_a_link_holds_a_drawing_as_long_as_it_fits_and_all_other_masks_always(kind: str, count: int) -> None:
    drawn = (Stroke(kind, 1, 1, 1, 1),) * count  # type: ignore[arg-type]
    text = compose.for_link(MaskSpec(sliding=3, drawn=drawn))
    assert text is not None
    assert len(text) <= link.LONGEST_MASKS
    assert len(quote(text)) < link.LONGEST_LINK
    assert MaskSpec.from_json(text) == MaskSpec(sliding=3, drawn=drawn if count <= 150 else ())
