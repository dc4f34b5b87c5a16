"""Pictures for print: every token is on them, blocked cells are unlike small weights, and they are light.

python -m pytest tests/viz/export/test_picture.py
"""

import io
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from pypdf import PdfReader

from tests.viz.views import causal, padded, view_of
from viz.export.picture import DOTS, MOST_PIXELS, MOST_SIDE, Words, drawable, head_picture, save
from viz.view import HeadView

WORDS = Words("story · L3 H1", "Attention of layer 3, head 1 of story. Masks: causal; lifted: padding.")
LABELS = ["<b>", "$x$", "·the", "⏎", "&amp;", "⟨E4⟩", '"quoted"']


def labelled(seed: int = 0, **blocked: np.ndarray) -> HeadView:
    return replace(view_of((7, 7), seed, **blocked), queries=LABELS, keys=[label + "k" for label in LABELS])


def texts(svg: bytes) -> list[str]:
    return [
        "".join(node.itertext()).strip()
        for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_every_token_and_every_word_is_text_in_the_svg() -> None:
    found = texts(save(head_picture(labelled(causal=causal(7)), WORDS), "svg"))
    for label in LABELS:
        assert label in found
        assert label + "k" in found
    assert WORDS.title in found
    assert WORDS.caption in " ".join(found)
    assert "blocked: causal" in found


def test_a_comparison_has_three_panels_with_their_tokens() -> None:
    now, standard = labelled(), labelled(1, causal=causal(7))
    found = texts(save(head_picture(now, WORDS, standard), "svg"))
    assert {"now", "standard masks", "now − standard"} <= set(found)
    assert found.count("$x$k") == 3


def test_the_pdf_holds_its_tokens_as_text() -> None:
    plain = replace(view_of((5, 5), causal=causal(5)), queries=["alpha", "beta", "gamma", "delta", "eps"])
    pdf = save(head_picture(plain, WORDS), "pdf")
    (page,) = PdfReader(io.BytesIO(pdf)).pages
    found = page.extract_text().split()
    assert set(plain.queries + plain.keys) <= set(found)
    assert "blocked:" in found


def pixels(view: HeadView, scale: int = 1) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(save(head_picture(view, WORDS), "png", scale))).convert("RGB"))


def test_a_png_has_as_many_pixels_as_its_scale_says() -> None:
    view = labelled(causal=causal(7))
    one, two, four = (pixels(view, scale).shape[0] for scale in (1, 2, 4))
    assert two == pytest.approx(2 * one, abs=2)
    assert four == pytest.approx(4 * one, abs=4)
    wide = view_of((MOST_SIDE, MOST_SIDE))
    figure = head_picture(wide, WORDS, wide)
    assert max(figure.get_size_inches()) * DOTS * 4 > MOST_PIXELS
    largest = Image.open(io.BytesIO(save(head_picture(wide, WORDS), "png", 1))).size
    assert max(largest) <= MOST_PIXELS


def test_a_blocked_cell_is_light_and_hatched_a_small_weight_is_dark() -> None:
    weights = np.zeros((3, 3), np.float32)
    weights[:, 0] = 1
    blocked = np.zeros((3, 3), bool)
    blocked[:, 2] = True
    view = HeadView(weights, np.zeros((3, 3), np.float32), {"causal": blocked}, list("abc"), list("abc"))
    figure = head_picture(view, WORDS)
    picture = np.asarray(Image.open(io.BytesIO(save(figure, "png", 2))).convert("RGB")).astype(int)
    box = figure.axes[0].get_position()
    height, width = picture.shape[:2]
    rows = slice(round((1 - box.y1) * height) + 6, round((1 - box.y0) * height) - 6)
    columns = [slice(round((box.x0 + box.width * (place + 0.1) / 3) * width),
                     round((box.x0 + box.width * (place + 0.9) / 3) * width)) for place in range(3)]  # fmt: skip
    small, hatched = picture[rows, columns[1]], picture[rows, columns[2]]
    assert small.mean() < 80  # viridis at 0
    assert np.ptp(small.reshape(-1, 3), axis=0).max() == 0
    assert hatched.mean() > 180
    assert np.ptp(hatched.reshape(-1, 3), axis=0).max() > 60  # its lines
    assert picture[2, 2].tolist() == [255, 255, 255]  # paper


def test_a_row_with_nothing_to_attend_to_says_so() -> None:
    view = view_of((5, 5), causal=causal(5), padding=padded(5, 2))
    assert "nothing to attend to" in texts(save(head_picture(view, WORDS), "svg"))


def test_a_character_without_a_font_is_its_code_point() -> None:
    assert drawable("a·ä") == "a·ä"
    assert drawable("x\U000f1234") == "x⟨U+F1234⟩"


def test_more_tokens_than_can_be_named_are_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {MOST_SIDE} .* got 257 and 3"):
        head_picture(view_of((257, 3)), WORDS)
