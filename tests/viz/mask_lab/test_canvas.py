"""Tests of the composed mask as bytes for its canvas, and in words."""

from typing import Any

import numpy as np

from model.heads.view import MaskView
from tests.viz.markup import plain
from tests.viz.packet import unpacked
from viz.hatch import LINES
from viz.mask_lab.canvas import canvas_packet, counts, formula
from viz.palette import MASK_COLOURS

SIZE = 7
CAUSAL = np.triu(np.ones((SIZE, SIZE), bool), 1)
PADDING = np.broadcast_to(np.arange(SIZE) < 2, (SIZE, SIZE))  # two cells of padding on the left
SINKS = np.zeros((SIZE, SIZE), bool)
SINKS[:, 3] = True


def view(**changes: Any) -> MaskView:
    plain = {
        "blockers": {"causal": CAUSAL, "padding": PADDING},
        "openers": {"sinks": SINKS},
        "token_indices": np.array([-1, -1, 0, 1, 2, 3, 4]),
        "strokes": [("block", 0, 0, 4, 0)],
        "labels": ["<pad>", "<pad>", *"abcde"],
    }
    return MaskView(**(plain | changes))


def cells_of(packet: bytes) -> tuple[dict[str, Any], np.ndarray]:
    """Return the header and the verdicts [Q,K], three per cell: under no stroke, one that blocks, one that opens."""
    header, body = unpacked(packet)
    which = body.view("<u2").reshape(len(header["rows"]["place"]), len(header["columns"]["place"]))
    assert set(which.flat) == set(range(len(header["verdicts"])))
    return header, np.array(header["verdicts"], object)[which]


def hatched(header: dict[str, Any], verdict: dict[str, Any]) -> list[str]:
    return [header["masks"][one]["name"] for one in verdict["hatch"]]


class TestPacket:
    def test_each_cell_has_its_verdict(self) -> None:
        header, cells = cells_of(canvas_packet(view(), rows=(0, SIZE), columns=(0, SIZE), epoch=2, number=5, most=11))
        for q, k in np.ndindex(SIZE, SIZE):
            blocking = [name for name, mask in (("causal", CAUSAL), ("padding", PADDING)) if mask[q, k]]
            plain, block, opened = cells[q, k]
            assert hatched(header, plain) == ([] if SINKS[q, k] else blocking)
            if min(q, k) < 2:
                assert plain == block == opened
                assert plain["words"].endswith("; padding cannot be drawn on")
            else:
                assert hatched(header, block) == [*hatched(header, plain), "drawn"]
                assert (hatched(header, opened), opened["opened"]) == ([], MASK_COLOURS["drawn"])
        assert cells[3, 4][0]["words"] == "blocked by causal"
        assert cells[3, 4][1]["words"] == "blocked by causal and drawn"
        assert cells[3, 4][2]["words"] == "drawn open, causal would block it"
        assert cells[2, 3][0]["words"] == "allowed: causal would block it, sinks open it again"
        assert cells[2, 3][0]["opened"] == MASK_COLOURS["sinks"]
        assert (cells[4, 3][0]["words"], cells[4, 3][0]["opened"]) == ("allowed", None)
        assert (header["epoch"], header["number"], header["most"]) == (2, 5, 11)
        assert (header["strokes"], header["below"]) == ([["block", 0, 0, 4, 0]], [])
        assert header["tokens"] == 5

    def test_a_part_of_the_text_keeps_its_positions(self) -> None:
        header, cells = cells_of(canvas_packet(view(), rows=(4, 6), columns=(1, 4), epoch=0, number=0, most=1))
        assert header["rows"] == {"first": 4, "place": [2, 3], "labels": list("cd")}
        assert header["columns"] == {"first": 1, "place": [-1, 0, 1], "labels": ["<pad>", *"ab"]}
        assert header["tokens"] == 5
        assert "queries in rows (2), keys in columns (3)" in header["alt"]
        assert [hatched(header, one[0]) for one in cells[0]] == [["padding"], [], []]

    def test_any_number_of_masks_may_block_a_cell(self) -> None:
        blockers = {name: np.tri(SIZE, k=-at, dtype=bool) for at, name in enumerate(LINES)}
        many = view(blockers=blockers, openers={}, token_indices=np.arange(SIZE))
        header, cells = cells_of(canvas_packet(many, rows=(0, SIZE), columns=(0, SIZE), epoch=0, number=0, most=1))
        for q, k in np.ndindex(SIZE, SIZE):
            assert hatched(header, cells[q, k][0]) == [name for name, mask in blockers.items() if mask[q, k]]


class TestWords:
    def test_the_formula_names_what_is_on(self) -> None:
        text = plain(formula(view()))
        assert text.startswith("allowed = ((causal ∧ padding) ∨ sinks) ∧ ¬drawn")
        assert "unless sinks opens it again" in text
        assert text.endswith("drawn overrides everything.")
        assert plain(formula(view(blockers={}, openers={}, strokes=[]))).startswith("allowed = everything")
        assert "overrides" not in formula(view(strokes=[("erase", 0, 0, 1, 1)]))

    def test_every_cell_is_counted_once_and_the_wholes_are_said(self) -> None:
        blocked = {"causal": CAUSAL & ~SINKS, "padding": PADDING & ~SINKS}
        text = plain(counts(blocked, view()))
        union = (blocked["causal"] | blocked["padding"]).sum()
        causal, padding = blocked["causal"].sum(), blocked["padding"].sum()
        assert text.startswith(f"Cells blocked: {union} of 49. By mask: {causal} causal, {union - causal} padding")
        assert f"each mask on its own: {causal} causal, {padding} padding" in text
        assert f"Opened again: {(CAUSAL & SINKS).sum()} sinks" in text
