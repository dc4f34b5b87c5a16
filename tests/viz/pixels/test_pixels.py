"""8×8 pictures: the packets for the canvas, the tables, the gallery and the sentence."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from model.pixels.view import PixelView
from tests.viz.packet import unpacked
from viz.palette import MASK_COLOURS, SEQUENTIAL
from viz.pixels.numbers import Seen, class_table, level_table, loss_figure, sentence, share_table, where
from viz.pixels.pictures import (
    GREYS,
    GalleryCard,
    drawing_packet,
    gallery,
    head_packet,
    heads_packet,
    largest,
    name_of,
    picture_png,
    scale_html,
    strongest,
)

LAYERS, HEADS = 2, 3


def view(pixel: int = 18, query: int = 19, *, causal: bool = True) -> PixelView:
    """From pixel 18 (row 2, column 2): head 1 of layer 1 looks half at the class token, half straight above."""
    weights = np.zeros((LAYERS, HEADS, 65), np.float32)
    weights[:, :, 1] = 1
    weights[1, 1] = 0
    weights[1, 1, [0, 11]] = 0.5
    levels = np.zeros(64, np.uint8)
    levels[18] = 7
    blocked = (np.arange(65) > query) & causal
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
    said = read(head_packet(view(query=18), 1, 1, 1))["hint"]
    assert said.startswith("r2 c1 (dashed) is the query and writes r2 c2 (framed)")
    assert read(head_packet(view(), 1, 1, 1))["hint"].startswith("r2 c2 (framed) is the query.")
    said = read(head_packet(view(pixel=0, query=0), 1, 1, 1))["hint"]
    assert said.startswith("class 3 (dashed) is the query and writes r0 c0")


def test_every_head_has_its_own_small_picture() -> None:
    packet = read(heads_packet(view(), 1, 1, 1.0))
    assert (packet["rows"], packet["columns"], packet["chosen"]) == (LAYERS, HEADS, 4)
    assert len(packet["pictures"]) == len(packet["names"]) == 6
    brightest = [
        picture["colours"].index(SEQUENTIAL[-1]) for picture in packet["pictures"] if picture != packet["pictures"][4]
    ]
    assert brightest == [1] * 5
    assert packet["names"][4] == "Layer 1, head 1: most to class 3 50.0%, r1 c2 50.0%"


def test_without_the_mask_nothing_is_hatched() -> None:
    packet = read(head_packet(view(causal=False), 1, 1, 1))
    assert not any(packet["blocked"])
    assert None not in packet["pictures"][0]["colours"]


def test_a_drawing_says_how_much_of_it_is_given() -> None:
    packet = read(drawing_packet(np.arange(64) % 8, "class 5", 24, 2, 9))
    assert packet["blocked"] == [False] * 25 + [True] * 40
    assert packet["levels"][:9] == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert (packet["given"], packet["epoch"], packet["number"], packet["mode"]) == (24, 2, 9, "draw")
    assert packet["pictures"][0]["colours"] is None


def test_pictures_of_a_head_share_their_colours() -> None:
    other = replace(view(), weights=view().weights * 0.3)
    assert largest(view(), other) == 1
    assert largest(other) == 0.3
    (*_, small, _), (large,) = (read(make(other, 1, 1, 0.3))["pictures"] for make in (heads_packet, head_packet))
    assert small["colours"] == large["colours"]
    assert "0.15" in scale_html(0.15)
    assert "hatched: blocked by causal" in scale_html(0.15)


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
    assert "on &lt;later&gt; pixels" in share_table(rows, changed=True)
    assert '<td class="number">0%</td>' in share_table(rows, changed=True)
    assert '<td class="number">0%</td>' not in share_table(rows, changed=False)


def test_the_class_that_is_told_is_marked() -> None:
    table = class_table(np.full(10, 0.1), 6)
    assert re.findall(r"<b>(\d) ← given</b>", table) == ["6"]
    assert table.count(">10.0%") == 10


def test_losses_are_drawn_where_their_pixels_are() -> None:
    now, standard = np.arange(64.0), np.zeros(64)
    figure = loss_figure(now, standard, np.zeros(64, np.uint8), changed=True)
    assert [trace.name for trace in figure.data] == ["now", "standard masks"]
    assert figure.data[0].z[2, 3] == 19
    assert {trace.zmax for trace in figure.data} == {63}
    assert figure.layout.yaxis.autorange == figure.layout.yaxis2.autorange == "reversed"
    assert len(loss_figure(now, standard, np.zeros(64), changed=False).data) == 1


def test_a_picture_is_paper_and_ink_with_a_line_below_what_was_given() -> None:
    levels = np.zeros(64, np.uint8)
    levels[9] = 7
    pixels = np.asarray(Image.open(io.BytesIO(picture_png(levels, scale=10))).convert("RGB"))
    assert pixels.shape == (80, 80, 3)
    assert pixels[15, 15].tolist() == [10, 10, 10] == [int(GREYS[7][1:3], 16)] * 3
    assert pixels[5, 5].tolist() == [255, 255, 255]
    marked = np.asarray(Image.open(io.BytesIO(picture_png(levels, 32, 10))).convert("RGB"))
    different = (marked != pixels).any(-1)
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


def seen(**changes: object) -> Seen:
    one = view(causal=bool(changes.pop("causal", True)))
    plain = Seen("L1 H1", one, one.weights[1, 1], 0.4, (0.25, 0.75), (1.0, 0.6), False)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_the_sentence_says_where_the_head_looks_and_what_is_blocked() -> None:
    assert sentence(seen()).startswith("L1 H1, from r2 c2: 50.0% on the class token, 50.0% on r1 c2, straight above.")
    assert "The 45 later pixels are blocked" in sentence(seen())
    last = view(63, 64)
    assert "Nothing comes after it" in sentence(replace(seen(), view=last))


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        ((1.0, 0.6), "rises from 0.600 to 1.000 nats/pixel: in training it never saw later pixels"),
        ((0.1, 0.6), "falls from 0.600 to 0.100 nats/pixel: <b>later pixels help it</b>"),
        ((0.602, 0.6), "hardly changes"),
    ],
)
def test_whether_the_answer_is_read_follows_from_the_loss(loss: tuple[float, float], verdict: str) -> None:
    words = sentence(seen(causal=False, loss=loss))
    assert "40.0% of L1 H1’s attention from r2 c2 goes to later pixels" in words
    assert verdict in words
    assert "25.0% instead of 75.0%" in words


def test_on_a_layer_alone_no_prediction_is_spoken_of() -> None:
    words = sentence(seen(causal=False, layer_only=True))
    assert "predictions do not change" in words
    assert "answer" not in words


def test_neighbours_are_called_by_where_they_are() -> None:
    next_one = "straight above the pixel that comes next"
    places = {11: "straight above", 18: "to its left", 10: "above to the left", 12: next_one}
    assert {cell: where(cell, view()).partition(", ")[2] for cell in places} == places
    assert where(19, view()) == "on itself"
    assert where(30, view()) == "on r3 c5"


def test_the_step_that_writes_a_pixel_speaks_of_that_pixel() -> None:
    writer = view(query=18)
    assert where(11, writer) == "on r1 c2, straight above"
    assert where(18, writer) == "on r2 c1, to its left"
    assert where(12, writer) == "on r1 c3, above to the right"
    words = sentence(replace(seen(), view=writer))
    assert words.startswith("L1 H1, writing r2 c2 from r2 c1: 50.0% on the class token")
