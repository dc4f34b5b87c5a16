"""The bytes of the head that grows: every number, label and reason as it was given.

python -m pytest tests/viz/generation/test_growing.py
"""

import io

import numpy as np
from PIL import Image

from tests.viz.packet import read_growing
from viz.generation.growing import growing_packet
from viz.view import HeadView

WEIGHTS = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.5, 0]], np.float32)
SCALED = np.arange(9, dtype=np.float32).reshape(3, 3)
CAUSAL = np.triu(np.ones((3, 3), bool), 1)
PADDING = np.array([[False, False, True]] * 3)
LABELS = ["<s>", "·a", "b"]
VIEW = HeadView(
    WEIGHTS, SCALED, {"causal": CAUSAL, "padding": PADDING}, ["<s>", "·a", "b"], ["<s>", "·a", "b"], first=7
)


def test_holds_the_head_the_framed_row_and_why_each_cell_is_blocked() -> None:
    found = read_growing(growing_packet(VIEW, 1, "a head", dark=False))
    np.testing.assert_array_equal(found.weights, WEIGHTS)
    np.testing.assert_array_equal(found.scores, SCALED)
    reasons = ["", *found.header["reasons"]]
    both = "blocked by causal and padding"
    expected = [["", "blocked by causal", both], ["", "", both], ["", "", "blocked by padding"]]
    assert [[reasons[cell] for cell in row] for row in found.reasons.tolist()] == expected
    asked = {name: found.header[name] for name in ("size", "first", "row", "labels", "most", "alt")}
    assert asked == {"size": 3, "first": 7, "row": 1, "labels": ["<s>", "·a", "b"], "most": 1.0, "alt": "a head"}


def test_hatches_the_blocked_cells_alone() -> None:
    found = read_growing(growing_packet(VIEW, 1, "", dark=True))
    picture = np.asarray(Image.open(io.BytesIO(found.hatching)).convert("RGBA"))
    cell = len(picture) // 3
    drawn = [[bool(picture[q * cell + 5, k * cell + 5 :, 3][: cell - 9].any()) for k in range(3)] for q in range(3)]
    assert drawn == (CAUSAL | PADDING).tolist()


def test_of_one_token_nothing_is_blocked() -> None:
    one = HeadView(WEIGHTS[:1, :1], SCALED[:1, :1], {"causal": CAUSAL[:1, :1]}, ["a"], ["a"])
    found = read_growing(growing_packet(one, 0, "", dark=False))
    assert (found.header["reasons"], found.hatching) == ([], b"")
