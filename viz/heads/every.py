"""Many heads at once as bytes for components/explorer.js, each number to the four digits that every view writes.

Four digits are a whole number of ten-thousandths, two bytes each: half of float32, and far less once deflated.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from i18n import together
from viz.components.packet import packed
from viz.components.words import words
from viz.heads.cells import described
from viz.heads.tokens import brightest, light_words
from viz.view import HeadView

MOST_CELLS = 144 * 128 * 128  # of all heads: 4.7 MB, 6.3 MB in base64, should they not deflate at all
SHIFT = 10_000  # added to the ten-thousandths: a change may be negative


def every_packet(
    heads: Mapping[tuple[int, int], HeadView],
    *,
    picture: dict[str, Any],
    most: Callable[[HeadView], float],
    views: Sequence[str],
    names: Sequence[Sequence[str]],
    notes: Sequence[Sequence[str]],
    chosen: Sequence[tuple[int, int]],
    absent: str,
    across: bool = False,
) -> bytes:
    """The heads that are held, over the same queries and keys, by layer and head; the names of all heads, held or not.

    picture: viz.heads.picture's header of the kind of number that they are. most: the number of a head's last colour.
    views: those that draw a head. chosen: the heads to choose first, of which the first is shown. absent: what is said
    of a head that is not held, "{}" standing for its name. across: the keys are another text.

    The planes: of all numbers in ten-thousandths, SHIFT added, the high bytes, then the low ones, uint8 [n,Q,K] each;
    then what blocks the cells, uint16 [m,Q,K], of which each head has one.
    """
    about, planes = described(list(heads.values()))
    masks: dict[bytes, int] = {}  # a plane -> its number: most heads have the same
    held = [
        {
            "head": [layer, head],
            "plane": masks.setdefault(plane.tobytes(), len(masks)),
            "most": most(view),
            "brightest": brightest(view),
            "note": together([*(notes[layer][head : head + 1] if notes else ()), *_light(view, views)]),
        }
        for ((layer, head), view), plane in zip(heads.items(), planes, strict=True)
    ]
    header = {
        "held": held,
        "shift": SHIFT,
        "views": list(views),
        "names": [list(row) for row in names],
        "chosen": [list(one) for one in chosen],
        "absent": absent,
        "among": [about["first"], about["first"] + len(about["queries"])],
        "across": across,
        "words": words(*views),
    }
    numbers = np.stack([ten_thousandths(view.weights) for view in heads.values()]) + SHIFT
    high, low = (numbers >> 8).astype(np.uint8), (numbers & 255).astype(np.uint8)
    return packed(about | picture | header, high.tobytes(), low.tobytes(), *masks)


def _light(view: HeadView, views: Sequence[str]) -> list[str]:
    words = light_words(view) if "tokens" in views else ""
    return [words] if words else []


def ten_thousandths(numbers: np.ndarray) -> np.ndarray:
    """float32, -1 to 1 -> int, -10,000 to 10,000: the digits of viz.heads.cells.weight_text, a tie away from 0.

    float64 holds the product exactly: 24 binary digits times 14.
    """
    return (np.sign(numbers) * np.floor(np.abs(numbers, dtype=np.float64) * 10_000 + 0.5)).astype(np.int32)


def room_for(view: HeadView, cells: int = MOST_CELLS) -> int:
    """How many heads like this one are held where there is room for so many cells; 1 at the least."""
    return max(cells // view.weights.size, 1)
