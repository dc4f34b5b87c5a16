"""The composed mask as bytes for its canvas, and in words.

python -m pytest tests/viz/mask_lab/test_canvas.py
"""

import re
from typing import Any

import numpy as np

from tests.viz.packet import unpacked
from viz.mask_lab.canvas import MaskView, canvas_packet
from viz.mask_lab.words import counts, formula

SIZE = 7
CAUSAL = np.triu(np.ones((SIZE, SIZE), bool), 1)
PADDING = np.broadcast_to(np.arange(SIZE) < 2, (SIZE, SIZE))  # two cells of padding on the left
SINKS = np.zeros((SIZE, SIZE), bool)
SINKS[:, 3] = True


def view(**changes: Any) -> MaskView:
    plain = {
        "blockers": {"causal": CAUSAL, "padding": PADDING},
        "openers": {"sinks": SINKS},
        "place": np.array([-1, -1, 0, 1, 2, 3, 4]),
        "strokes": [("block", 0, 0, 4, 0)],
        "labels": ["<pad>", "<pad>", *"abcde"],
    }
    return MaskView(**(plain | changes))


def planes_of(packet: bytes) -> tuple[dict[str, Any], np.ndarray]:
    """The header, and the planes uint8 [2,Q,K]: blockers, openers."""
    header, body = unpacked(packet)
    return header, body.reshape(2, len(header["rows"]["place"]), len(header["columns"]["place"]))


class TestPacket:
    def test_a_bit_for_each_mask_and_each_opening(self) -> None:
        header, (blockers, openers) = planes_of(
            canvas_packet(view(), rows=(0, SIZE), columns=(0, SIZE), epoch=2, number=5, most=11)
        )
        assert [one["name"] for one in header["masks"]] == ["causal", "padding"]
        np.testing.assert_array_equal(blockers & 1 != 0, CAUSAL)
        np.testing.assert_array_equal(blockers & 2 != 0, PADDING)
        np.testing.assert_array_equal(openers != 0, SINKS)
        assert (header["epoch"], header["number"], header["most"]) == (2, 5, 11)
        assert (header["strokes"], header["below"]) == ([["block", 0, 0, 4, 0]], [])
        assert header["tokens"] == 5

    def test_a_part_of_the_text_keeps_its_positions(self) -> None:
        header, (blockers, _) = planes_of(canvas_packet(view(), rows=(4, 6), columns=(1, 4), epoch=0, number=0, most=1))
        assert header["rows"] == {"first": 4, "place": [2, 3], "labels": list("cd")}
        assert header["columns"] == {"first": 1, "place": [-1, 0, 1], "labels": ["<pad>", *"ab"]}
        assert header["tokens"] == 5
        assert "2 queries in rows, 3 keys in columns" in header["alt"]
        np.testing.assert_array_equal(blockers & 2 != 0, PADDING[4:6, 1:4])


def words(html: str) -> str:
    return re.sub("<.*?>", "", html)


class TestWords:
    def test_the_formula_names_what_is_on(self) -> None:
        said = words(formula(view()))
        assert said.startswith("allowed = ((causal ∧ padding) ∨ sinks) ∧ ¬drawn")
        assert "unless sinks opens it again" in said
        assert said.endswith("drawn has the last word.")
        assert words(formula(view(blockers={}, openers={}, strokes=[]))).startswith("allowed = everything")

    def test_every_cell_is_counted_once_and_the_wholes_are_said(self) -> None:
        blocked = {"causal": CAUSAL & ~SINKS, "padding": PADDING & ~SINKS}
        said = words(counts(blocked, view()))
        union = (blocked["causal"] | blocked["padding"]).sum()
        causal, padding = blocked["causal"].sum(), blocked["padding"].sum()
        assert said.startswith(f"{union} of 49 cells blocked: {causal} causal, {union - causal} padding")
        assert f"each counted alone: {causal} causal, {padding} padding" in said
        assert f"Opened again: {(CAUSAL & SINKS).sum()} sinks" in said

    def test_one_mask_alone_needs_no_second_count(self) -> None:
        alone = view(blockers={"causal": CAUSAL}, openers={}, strokes=[])
        assert words(counts({"causal": CAUSAL}, alone)) == "21 of 49 cells blocked: 21 causal."
