"""Tests of 8×8 pictures: the packets for the canvas, the tables, the gallery and the sentence."""

import re
from dataclasses import replace

import numpy as np

from model.pixels.view import PixelView
from tests.viz.packet import unpacked
from viz.numbers import share_table
from viz.palette import MASK_COLOURS, SEQUENTIAL
from viz.pixels import (
    GREYS,
    GalleryCard,
    enlarged,
    gallery,
    head_packet,
    heads_packet,
    largest,
    level_table,
    name_of,
    scale_html,
    sentence,
    strongest,
    where,
)

LAYERS, HEADS = 2, 3


def view(pixel: int = 18, query: int = 19, *, causal: bool = True) -> PixelView:
    """Return a view from pixel 18 (row 2, column 2): L1 H1 attends half to the class token, half to the pixel above."""
    weights = np.zeros((LAYERS, HEADS, 65), np.float32)
    weights[:, :, 1] = 1
    weights[1, 1] = 0
    weights[1, 1, [0, 11]] = 0.5
    levels = np.zeros(64, np.uint8)
    levels[18] = 7
    blocked = {"causal": np.broadcast_to((np.arange(65) > query) & causal, weights.shape)}
    return PixelView(levels, 3, weights, blocked, pixel, query, weights, np.ones(8) / 8, np.zeros(64))


def read(packet: bytes) -> dict:
    header, body = unpacked(packet)
    assert not len(body)
    return header


def test_a_cell_is_named_by_its_row_and_column() -> None:
    assert [name_of(cell, "class 3") for cell in (0, 1, 14, 64)] == ["class 3", "r0 c0", "r1 c5", "r7 c7"]


def test_the_head_on_the_picture_has_a_colour_for_every_cell_that_may_be_seen() -> None:
    packet = read(head_packet(view(), 1, 1, 0.5))
    (picture,) = packet["pictures"]
    assert picture["colours"][0] == picture["colours"][11] == SEQUENTIAL[-1]
    assert picture["colours"][1] == SEQUENTIAL[0]
    assert picture["colours"][20:] == [None] * 45
    assert packet["blocked"] == [False] * 20 + [True] * 45
    assert packet["hatch"]["colour"] == MASK_COLOURS["causal"]
    assert (packet["mode"], packet["chosen"], packet["query"]) == ("pick", 18, 19)
    assert packet["names"][10] == "r2 c2 attends to r1 c2 (level 0): weight 0.5000"
    assert packet["names"][19] == "r2 c2 attends to r2 c3 (level 0): blocked by causal"
    assert "45 cells are blocked by causal" in packet["alt"]
    assert "class 3 50.0%, r1 c2 50.0%" in packet["alt"]
    assert "Class token: 50.0%" in packet["hint"]


def test_the_step_that_writes_a_pixel_is_said_to_look_and_to_write() -> None:
    text = read(head_packet(view(query=18), 1, 1, 1))["hint"]
    assert text.startswith("r2 c1 (dashed) is the query and writes r2 c2 (framed)")
    assert read(head_packet(view(), 1, 1, 1))["hint"].startswith("r2 c2 (framed) is the query.")
    text = read(head_packet(view(pixel=0, query=0), 1, 1, 1))["hint"]
    assert text.startswith("class 3 (dashed) is the query and writes r0 c0")


def test_every_head_has_its_own_small_picture() -> None:
    packet = read(heads_packet(view(), 1, 1, 1.0))
    assert (packet["rows"], packet["columns"], packet["chosen"]) == (LAYERS, HEADS, 4)
    assert len(packet["pictures"]) == len(packet["names"]) == 6
    brightest = [
        picture["colours"].index(SEQUENTIAL[-1]) for picture in packet["pictures"] if picture != packet["pictures"][4]
    ]
    assert brightest == [1] * 5
    assert packet["names"][4] == "Layer 1, head 1: most to class 3 50.0%, r1 c2 50.0%"


def test_pictures_of_a_head_share_their_colours() -> None:
    other = replace(view(), weights=view().weights * 0.3)
    assert largest(view(), other) == 1
    assert largest(other) == 0.3
    (*_, small, _), (large,) = (read(make(other, 1, 1, 0.3))["pictures"] for make in (heads_packet, head_packet))
    assert small["colours"] == large["colours"]
    assert "0.15" in scale_html(0.15)
    nothing = replace(view(), blocked={})
    assert "hatched: blocked by causal" in scale_html(0.15, nothing, view())
    assert "hatched" not in scale_html(0.15, nothing)


def test_the_strongest_cells_leave_out_what_gets_nothing() -> None:
    assert strongest(np.array([0, 0.2, 0, 0.8])) == [3, 1]


def test_the_true_level_is_marked_in_the_table() -> None:
    now, standard = np.full(8, 0.125), np.array([0.5, 0.5, 0, 0, 0, 0, 0, 0])
    table = level_table(now, standard, 1, "r2 c2 <b>", changed=True)
    assert "r2 c2 &lt;b&gt;" in table
    assert table.count(">12.5%") == 8
    assert table.count(">50.0%") == 2
    assert re.findall(r"<b>(\d) ← true</b>", table) == ["1"]
    assert level_table(now, standard, 1, "", changed=False).count(">12.5%") == 0


def test_a_table_of_shares_has_the_standard_beside_only_what_changed() -> None:
    rows = [("on <later> pixels", "41.0%", "0%")]
    assert "on &lt;later&gt; pixels" in share_table("measured", rows, changed=True)
    assert '<td class="number">0%</td>' in share_table("measured", rows, changed=True)
    assert '<td class="number">0%</td>' not in share_table("measured", rows, changed=False)


def test_a_picture_is_paper_and_ink_with_a_line_below_what_was_given() -> None:
    levels = np.zeros(64, np.uint8)
    levels[9] = 7
    pixels = enlarged(levels)
    assert pixels.shape == (80, 80, 3)
    assert pixels[15, 15].tolist() == [10, 10, 10] == [int(GREYS[7][1:3], 16)] * 3
    assert pixels[5, 5].tolist() == [255, 255, 255]
    different = (enlarged(levels, 32) != pixels).any(-1)
    assert different.any(1).nonzero()[0].tolist() == [39, 40]


def test_a_gallery_frames_what_is_recognised_and_escapes_its_captions() -> None:
    found = gallery(
        [GalleryCard(np.zeros(64, np.uint8), "3, read as 3", True), GalleryCard(np.zeros(64, np.uint8), "<i>", False)]
    )
    assert found.count("<figure") == 2
    assert 'class="yes"' in found
    assert 'class="no"' in found
    assert "&lt;i&gt;" in found
    assert "<i>" not in found
    assert 'alt="A written digit: 3, read as 3"' in found


def test_the_sentence_says_where_the_head_looks_and_what_is_blocked() -> None:
    text = sentence(view(), view(), 1, 1, causal=True, layer_only=False)
    assert text.startswith("L1 H1, from r2 c2: 50.0% on the class token, 50.0% on r1 c2, straight above.")
    assert "Later pixels that are blocked: 45." in text


def test_neighbours_are_called_by_where_they_are() -> None:
    next_one = "straight above the pixel that comes next"
    expected = {11: "straight above", 18: "to its left", 10: "above to the left", 12: next_one}
    assert {cell: where(cell, view()).partition(", ")[2] for cell in expected} == expected
    assert where(19, view()) == "on itself"
    assert where(30, view()) == "on r3 c5"


def test_the_step_that_writes_a_pixel_speaks_of_that_pixel() -> None:
    writer = view(query=18)
    assert where(11, writer) == "on r1 c2, straight above"
    assert where(18, writer) == "on r2 c1, to its left"
    assert where(12, writer) == "on r1 c3, above to the right"
    words = sentence(writer, writer, 1, 1, causal=True, layer_only=False)
    assert words.startswith(
        "L1 H1, from r2 c1, which writes r2 c2 (directions are from r2 c2): 50.0% on the class token, 50.0% on r1 c2, "
        "straight above."
    )


def test_from_the_last_pixel_nothing_is_blocked_whether_the_mask_is_on_or_off() -> None:
    last = view(pixel=63, query=64)
    text = sentence(last, last, 1, 1, causal=True, layer_only=False)
    assert text == "L1 H1, from r7 c7: 50.0% on the class token, 50.0% on r1 c2."
    lifted = sentence(last, last, 1, 1, causal=False, layer_only=False)
    assert "later pixels" not in lifted
    assert "true level of r7 c7" in lifted
    assert "Turn Causal off" not in lifted


def test_what_blocks_a_cell_is_named_in_every_head_by_itself() -> None:
    later, near = view().blocked["causal"].copy(), np.zeros((LAYERS, HEADS, 65), bool)
    later[1], near[1, 1, :5] = False, True
    some = replace(view(), blocked={"causal": later, "sliding": near})
    large = read(head_packet(some, 1, 1, 1))
    assert large["names"][1] == "r2 c2 attends to r0 c1 (level 0): blocked by sliding"
    assert large["blocked"] == [True] * 5 + [False] * 60
    assert "5 cells are blocked by sliding." in large["alt"]
    assert large["hatch"]["colour"] == MASK_COLOURS["sliding"]
    assert "No cell is blocked." in read(head_packet(some, 1, 0, 1))["alt"]
    small = read(heads_packet(some, 1, 1, 1))["pictures"]
    assert [one["colours"].count(None) for one in small] == [45, 45, 45, 0, 5, 0]


def test_a_loss_that_falls_is_not_explained_by_what_was_never_seen() -> None:
    """Many losses fall under a wrong class token."""
    worse, better = (replace(view(causal=False), losses=np.full(64, loss)) for loss in (1.5, 1.25))
    for now, standard, words in (
        (worse, better, "from 1.250 to 1.500 nats/pixel: in training it never saw later pixels. "),
        (better, worse, "from 1.500 to 1.250 nats/pixel. "),
    ):
        assert words in sentence(now, standard, 1, 1, causal=False, layer_only=False)
