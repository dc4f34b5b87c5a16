"""Tests of pictures for print: all tokens are on them, blocked cells differ from small weights, and files are small."""

import base64
import io
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import streamlit as st
from PIL import Image
from pypdf import PdfReader

from model.attribution.parts import ScoreSplit, ValueWeightedAttention
from model.heads.survey import thumbnail_size
from model.heads.view import HeadView, cropped
from tests.viz.heads.test_atlas import INDUCTION, atlas_of
from tests.viz.views import causal, padded, view_of
from viz.export import fonts, paper
from viz.export.fonts import drawable
from viz.export.paper import Paper, Sheet, all_heads_picture, atlas_picture
from viz.export.picture import (
    MAX_SIDE,
    bars_picture,
    coloured_text_picture,
    contributions_picture,
    head_picture,
    lines_picture,
    score_picture,
)
from viz.export.words import atlas_caption
from viz.heads.bars import row_of
from viz.heads.colours import Colours

PAPER = Paper("story · L3 H1", "Attention of layer 3, head 1 of story. Masks: causal; off: padding.")
CARRIED = ValueWeightedAttention(
    weights=np.array([0.5, 0.25, 0.25, 0, 0, 0, 0]),
    value_norms=np.array([1, 4, 12, 1, 1, 1, 1]),
    moved=np.array([0.5, 1, 3, 0, 0, 0, 0]),
    added=np.array([3, 1, 0, 0, 0, 0, 0]),
    output=3.0,
)
SPLIT = ScoreSplit(
    q=np.array([1.0, -2.0, 3.0]),
    k=np.array([4.0, 0.5, -1.0]),
    scale=0.5,
    by_dimension=np.array([2.0, -0.5, -1.5]),
    score=0.0,
    sources=("token", "L0 H1"),
    terms=np.array([[2.0, -0.25], [0.75, -2.5]]),
)
LABELS = ["<b>", "$x$", "·the", "⏎", "&amp;", "⟨E4⟩", '"quoted"']


def labelled(seed: int = 0, **blocked: np.ndarray) -> HeadView:
    return replace(view_of((7, 7), seed, **blocked), queries=LABELS, keys=[label + "k" for label in LABELS])


def file_of(kind: str, draw: Callable[..., Sheet], *of: Any, scale: int = 1) -> bytes:
    return draw(replace(PAPER, kind=kind, scale=scale), *of).file()


def texts(svg: bytes) -> list[str]:
    return [
        "".join(node.itertext()).strip()
        for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]


def every_kind() -> dict[str, tuple[Callable[..., Sheet], tuple[Any, ...], list[str]]]:
    """Return each kind of picture, its arguments, and the tokens and names that are on it."""
    view, standard = labelled(), labelled(1, causal=causal(7))
    small = np.stack([[view.weights, standard.weights]] * 3)
    return {
        "comparison": (
            head_picture,
            (view, standard),
            [*view.queries, *view.keys, "now − standard", "blocked: causal"],
        ),
        "every": (
            all_heads_picture,
            (small, np.stack([causal(7)[None]] * 3), (1, 4, 7)),
            ["L1", "L4", "L7", "H0", "H1"],
        ),
        "arcs": (lines_picture, ([view, standard], ["L3 H1", "L3 H0"]), [*view.queries, *view.keys, "L3 H1", "L3 H0"]),
        "tokens": (coloured_text_picture, (cropped(standard, (4, 5), (0, 7)), True), [*view.keys, "the query token"]),
        "bars": (bars_picture, (row_of(view, standard, 4),), [*view.keys, "now", "standard masks"]),
        "carried": (
            contributions_picture,
            (cropped(view, (4, 5), (0, 7)), CARRIED),
            [*view.keys, "weight × |v|", "adds"],
        ),
        "why": (
            score_picture,
            (SPLIT,),
            ["query", "key", "product", "L0 H1 · L0 H1", "token · L0 H1", "−2.500", "+0.750"],
        ),
    }


@pytest.mark.parametrize("name", every_kind())
def test_every_token_and_every_word_is_text_in_the_svg(name: str) -> None:
    draw, of, words = every_kind()[name]
    found = texts(file_of("svg", draw, *of))
    assert [word for word in words if word not in found] == []
    assert PAPER.title in found
    assert PAPER.caption in " ".join(found)


def test_all_heads_of_gpt2_xl_are_a_small_part_of_what_a_message_holds() -> None:
    """This is the largest picture that a page sends, in base64, in one message of at most server.maxMessageSize."""
    side = thumbnail_size(48, 25)
    small, blocked = np.random.default_rng(0).random((48, 25, side, side), np.float32), causal(side)[None]
    sent = len(file_of("svg", all_heads_picture, small, np.stack([blocked] * 48))) * 4 / 3
    assert 3 * sent < st.get_option("server.maxMessageSize") * 10**6


@pytest.mark.parametrize("name", every_kind())
def test_every_token_is_in_the_pdf_and_its_paper_is_white(name: str) -> None:
    draw, of, words = every_kind()[name]
    (page,) = PdfReader(io.BytesIO(file_of("pdf", draw, *of))).pages
    found = page.extract_text()
    assert [word for word in words if word not in found] == []
    picture = Image.open(io.BytesIO(file_of("png", draw, *of))).convert("RGB")
    assert picture.getpixel((2, 2)) == picture.getpixel((picture.width - 2, picture.height - 2)) == (255, 255, 255)


def test_each_head_is_a_picture_of_its_own_in_the_pdf() -> None:
    heads = np.random.default_rng(0).random((3, 2, 7, 7), np.float32)
    (page,) = PdfReader(io.BytesIO(file_of("pdf", all_heads_picture, heads, np.stack([causal(7)[None]] * 3)))).pages
    assert [picture.image.size for picture in page.images if picture.image.size == (7, 7)] == [(7, 7)] * 6


def test_a_comparison_that_a_screen_would_show_coarser_has_every_cell() -> None:
    tokens = 131
    now, standard = view_of((tokens, tokens)), view_of((tokens, tokens), 1, causal=causal(tokens))
    now.blocked["padding"] = padded(tokens, 2)
    both = padded(tokens, 2) & causal(tokens)
    *_, panel = (axes for axes in head_picture(replace(PAPER, kind="png"), now, standard).figure.axes if axes.images)
    shown = panel.images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(shown), both)
    np.testing.assert_array_equal(shown.data[~both], (now.weights - standard.weights)[~both])


@pytest.mark.parametrize("size", [(7, 7), (1, 11), (11, 1), (3, 67)])
def test_a_token_stands_where_its_cells_are(size: tuple[int, int]) -> None:
    rows, columns = size
    figure = head_picture(replace(PAPER, kind="png"), view_of(size)).figure
    panel = figure.axes[0]
    cells = panel.transData + figure.transFigure.inverted()
    corners = {text.get_text(): text.get_position() for text in figure.texts}
    across = [(cells.transform((column, 0))[0], corners[f"k{column}"][0]) for column in range(columns)]
    down = [(cells.transform((0, row))[1], corners[f"q{row}"][1]) for row in range(rows)]
    np.testing.assert_allclose(*zip(*across, *down, strict=True), atol=1e-9)
    (left, low), (right, high) = panel.get_position().get_points()
    assert corners["q0"][0] < left < right < 1
    assert 0 < corners["k0"][1] < low < high
    wide, tall = figure.get_size_inches() * (right - left, high - low)
    assert wide / columns == pytest.approx(tall / rows), "cells are squares"


def test_the_svg_has_the_cells_and_the_names_where_the_png_has_them() -> None:
    view, kinds = labelled(1, causal=causal(7), padding=padded(7, 2)), ("svg", "png")
    drawn, other = (head_picture(replace(PAPER, kind=kind), view) for kind in kinds)
    root = ElementTree.fromstring(drawn.file())
    image, bar = root.iter("{http://www.w3.org/2000/svg}image")
    assert (drawn.wide, drawn.tall) == (other.wide, other.tall)
    for shown, axes in zip((image, bar), other.figure.axes, strict=True):
        box = axes.get_position()
        size = np.array([other.wide, other.tall]) * 72
        frame = [float(shown.attrib[name]) for name in ("x", "y", "width", "height")]
        assert frame == pytest.approx([box.x0 * size[0], (1 - box.y1) * size[1], *(box.size * size)], abs=0.02)
    data = image.attrib["{http://www.w3.org/1999/xlink}href"].partition("base64,")[2]
    cells = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    np.testing.assert_array_equal(cells[..., 3] == 0, view.any_blocked())
    panel = other.figure.axes[0].images[0]
    np.testing.assert_array_equal(cells, panel.cmap(panel.norm(panel.get_array()), bytes=True))
    paths = {node.attrib["fill"]: node.attrib["d"] for node in root.iter("{http://www.w3.org/2000/svg}path")}
    assert {"url(#hatch-causal)", "url(#hatch-padding)"} <= set(paths)
    names = {"".join(node.itertext()): node for node in root.iter("{http://www.w3.org/2000/svg}text")}
    cell = float(image.attrib["height"]) / 7
    for row, label in enumerate(view.queries):
        middle = float(image.attrib["y"]) + (row + 0.5) * cell
        assert middle < float(names[label].attrib["y"]) < middle + cell / 2, "its baseline"
    for column, label in enumerate(view.keys):
        middle = float(image.attrib["x"]) + (column + 0.5) * cell
        assert f" {names[label].attrib['x']} " in f" {middle:.2f} "


@pytest.mark.parametrize("size", [(1, 1), (1, 11), (2, 13), (11, 1), (7, 7)])
def test_no_words_of_a_picture_lie_on_others(size: tuple[int, int]) -> None:
    figure = head_picture(replace(PAPER, kind="png"), view_of(size)).figure
    boxes = [text.get_window_extent() for text in figure.texts if text.get_text()]
    assert [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)] == []
    page = figure.bbox
    assert [box for box in boxes if not (page.containsx(box.x0) and page.containsy(box.y1))] == []


MASKS = {name: causal(3) for name in ("causal", "padding", "sliding", "documents")}
LONG = replace(PAPER, title="TinyLlama-1.1B-intermediate-step-1431k-3T · L12 H3", kind="png")


@pytest.mark.parametrize(
    "draw", [head_picture, lambda paper, view: contributions_picture(paper, row_of(view, None, 1).view, CARRIED)]
)
def test_the_legend_and_the_title_are_whole_on_a_small_picture(draw: Callable[..., Sheet]) -> None:
    sheet = draw(LONG, view_of((3, 3), **MASKS))
    (legend,) = sheet.figure.legends
    drawn = [sheet.figure.texts[0], *legend.get_texts()]
    assert "weight × |v|" in [text.get_text() for text in drawn] or draw is head_picture
    assert all(text.get_window_extent().x1 <= sheet.figure.bbox.x1 for text in drawn)


@pytest.mark.filterwarnings("ignore:Glyph")  # for the SVG, whose viewer may have a font
def test_a_character_without_a_font_is_its_code_point_and_itself_in_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawable("a·ä") == "a·ä"
    assert drawable("x\U000f1234\U000f1235 y") == "x⟨U+F1234 U+F1235⟩ y"
    here = replace(labelled(), queries=[*LABELS[:6], "中文"], keys=[*LABELS[:6], "\U000f1234"])
    monkeypatch.setattr(fonts, "_covering", lambda character: None)  # whatever fonts this machine has
    monkeypatch.setattr(fonts, "_in_ours", lambda character: ord(character) < 0x4E00)
    for kind in ("png", "pdf"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # matplotlib warns when it draws a box instead
            made = file_of(kind, head_picture, here)
    assert "⟨U+4E2D U+6587⟩" in PdfReader(io.BytesIO(made)).pages[0].extract_text()
    found = texts(file_of("svg", head_picture, here))
    assert {"中文", "\U000f1234"} <= set(found)


def pixels(view: HeadView, scale: int = 1) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file_of("png", head_picture, view, scale=scale))).convert("RGB"))


@pytest.mark.parametrize("label", ["\f", "\ud800"])
def test_a_label_that_xml_cannot_hold_is_a_replacement_character(label: str) -> None:
    view = labelled()
    view = replace(view, queries=[label, *view.queries[1:]], keys=[label, *view.keys[1:]])
    drawn = (
        (head_picture, (view,)),
        (coloured_text_picture, (cropped(view, (4, 5), (0, 7)), True)),
        (lines_picture, ([view], ["L3 H1"])),
    )
    for draw, of in drawn:
        assert "\ufffd" in texts(file_of("svg", draw, *of))


def test_a_png_has_as_many_pixels_as_its_scale_says(monkeypatch: pytest.MonkeyPatch) -> None:
    view = labelled(causal=causal(7))
    one, two, four = (pixels(view, scale).shape[0] for scale in (1, 2, 4))
    assert two == pytest.approx(2 * one, abs=2)
    assert four == pytest.approx(4 * one, abs=4)
    monkeypatch.setattr(paper, "MAX_PIXELS", one + 9)
    assert max(pixels(view, 4).shape) == one + 9
    monkeypatch.setattr(paper, "MAX_AREA", 40_000)
    height, width, _ = pixels(view, 4).shape
    assert 0.95 * 40_000 < height * width < 1.05 * 40_000


def test_a_blocked_cell_is_light_and_hatched_a_small_weight_is_dark() -> None:
    weights = np.zeros((3, 3), np.float32)
    weights[:, 0] = 1
    blocked = np.zeros((3, 3), bool)
    blocked[:, 2] = True
    view = HeadView(weights, np.zeros((3, 3), np.float32), {"causal": blocked}, list("abc"), list("abc"))
    sheet = head_picture(replace(PAPER, kind="png", scale=2), view)
    picture = np.asarray(Image.open(io.BytesIO(sheet.file())).convert("RGB")).astype(int)
    box = sheet.figure.axes[0].get_position()
    height, width = picture.shape[:2]
    rows = slice(round((1 - box.y1) * height) + 6, round((1 - box.y0) * height) - 6)
    columns = [slice(round((box.x0 + box.width * (index + 0.1) / 3) * width),
                     round((box.x0 + box.width * (index + 0.9) / 3) * width)) for index in range(3)]  # fmt: skip
    small, hatched = picture[rows, columns[1]], picture[rows, columns[2]]
    assert small.mean() < 80  # viridis at 0
    assert np.ptp(small.reshape(-1, 3), axis=0).max() == 0
    assert hatched.mean() > 180
    assert np.ptp(hatched.reshape(-1, 3), axis=0).max() > 60  # the hatching
    assert picture[2, 2].tolist() == [255, 255, 255]  # white paper


def test_the_colours_are_those_that_the_reader_chose() -> None:
    view = replace(labelled(), weights=np.full((7, 7), 0.25, np.float32))

    def first_cell(colours: Colours) -> list[int]:
        sheet = head_picture(replace(PAPER, kind="png"), view, None, colours)
        picture = np.asarray(Image.open(io.BytesIO(sheet.file())).convert("RGB"))
        box, (height, width) = sheet.figure.axes[0].get_position(), picture.shape[:2]
        return picture[round((1 - box.y1) * height) + 5, round(box.x0 * width) + 5].tolist()

    assert first_cell(Colours(range="one")) == pytest.approx([33, 145, 140], abs=2)  # viridis at √0.25
    assert first_cell(Colours(range="one", brightness="linear")) == pytest.approx([59, 82, 139], abs=3)
    assert first_cell(Colours("inferno", "largest")) == pytest.approx([252, 255, 164], abs=2)


def test_what_is_carried_is_in_shares_of_all_keys() -> None:
    part = cropped(labelled(causal=causal(7)), (4, 5), (1, 4))  # without the first key
    (panel, *_) = contributions_picture(PAPER, part, CARRIED).figure.axes
    heights = [bar.get_height() for bar in panel.patches]
    assert heights == pytest.approx([0.25, 0.25, 0, 1 / 4.5, 3 / 4.5, 0, 0.25, 0, 0])
    (panel, *_) = contributions_picture(PAPER, part, replace(CARRIED, added=None)).figure.axes
    assert len(panel.patches) == 6


def test_a_score_s_strips_are_its_numbers_and_its_bars_its_terms_the_largest_first() -> None:
    *strips, bars = score_picture(PAPER, SPLIT).figure.axes
    for strip, values in zip(strips, (SPLIT.q, SPLIT.k, SPLIT.by_dimension), strict=True):
        (image,) = strip.images
        np.testing.assert_array_equal(image.get_array(), [values])
    assert [strip.images[0].norm.vmax for strip in strips] == [4, 4, 2]
    assert [bar.get_width() for bar in bars.patches] == [-2.5, 2, 0.75, -0.25]
    assert len({bar.get_facecolor() for bar in bars.patches}) == 2
    low, high = bars.get_ylim()
    assert low > high, "the first bar stands above"
    assert len(score_picture(PAPER, replace(SPLIT, sources=None, terms=None)).figure.axes) == 3


def test_a_head_of_an_atlas_is_a_point_where_its_measures_are_in_its_layer_s_colour() -> None:
    sheet = atlas_picture(PAPER, atlas_of(induction=INDUCTION), "induction", "previous", (1, 0))
    panel, key = sheet.figure.axes
    (points,) = panel.collections
    across = np.array(INDUCTION).ravel()
    counted = ~np.isnan(across)
    np.testing.assert_allclose(points.get_offsets(), np.c_[across[counted], np.full(counted.sum(), 0.1)])
    np.testing.assert_array_equal(points.get_array(), [3, 3, 3, 7, 7])
    assert (points.norm.vmin, points.norm.vmax) == (3, 7)
    across_even, up_even = panel.lines  # lines of an even head
    assert set(across_even.get_xdata()) == set(up_even.get_ydata()) == {0.2}
    assert key.get_ylabel() == "layer"
    atlas = atlas_of()
    assert any("uniform attention" in text for text in atlas_caption(atlas, "induction", "entropy"))
    uneven = replace(atlas, even=atlas.even * np.array([1, 2]))
    assert atlas_caption(uneven, "entropy", "peak") == [
        "Each point is a head: entropy on the x axis, sharpness on the y axis.",
        "",
    ]
    assert not atlas_picture(PAPER, uneven, "entropy", "peak", (0, 0)).figure.axes[0].lines
    of_weights = replace(atlas, of_weights={"copying_scores": np.ones_like(INDUCTION)})
    atlas_picture(PAPER, of_weights, "copying_scores", "peak", (0, 0))
    assert atlas_caption(of_weights, "copying_scores", "peak")[0].startswith("Each point is a head: OV copying")


def test_a_row_with_nothing_to_attend_to_says_so() -> None:
    view = view_of((5, 5), causal=causal(5), padding=padded(5, 2))
    assert "nothing to attend to" in texts(file_of("svg", head_picture, view))


def test_more_tokens_than_can_be_named_are_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_SIDE} .* got 257 and 3"):
        head_picture(PAPER, view_of((257, 3)))
