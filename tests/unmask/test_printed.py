"""Tests of captions and labels of pictures that are saved for print."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import unmask
from tests.viz.packet import unpacked
from unmask.pictures import Picture
from unmask.runs import Run
from viz.export.fonts import width
from viz.export.picture import LARGEST, NUMBER

SVG = "{http://www.w3.org/2000/svg}text"


@pytest.fixture(scope="module")
def run() -> Run:
    return unmask.load("story").run("A b c d e f, g h i.")


def printed(picture: Picture, folder: Path) -> str:
    """Return all text in a picture's SVG."""
    picture.save(file := folder / "picture.svg")
    return " ".join("".join(node.itertext()) for node in ElementTree.parse(file).iter(SVG))


def test_rows_are_what_they_are_called(run: Run, tmp_path: Path) -> None:
    assert "Rows are queries 0–" in printed(run.head(4, 0), tmp_path)
    together = printed(run.head(4, 0).queries(range(3, 6), "sum"), tmp_path)
    assert "Columns are keys 0–" in together
    assert "Rows are" not in together
    flow = printed(run.flow(5), tmp_path)
    assert "Rows are layers, columns are keys 0–" in flow
    assert "that attends" not in flow
    assert "merged" not in printed(run.merged("words").flow(5), tmp_path)


@pytest.mark.parametrize(
    ("queries", "keys", "text"),
    [(5, 120, "120 keys"), (120, 5, "120 queries"), (120, 130, "120 queries"), (64, 64, "")],
)
def test_thumbnails_of_a_long_side_say_that_a_pixel_is_a_patch(
    queries: int, keys: int, text: str, tmp_path: Path
) -> None:
    weights = np.full((1, 2, queries, keys), 1 / keys, np.float32)
    names = [[f"{kind}{index}" for index in range(count)] for kind, count in (("q", queries), ("k", keys))]
    words = printed(unmask.attentions([weights], names[0], keys=names[1]).heads(), tmp_path)
    assert re.findall(r"(\d+ \w+); each pixel shows the largest weight of a patch", words) == [text] * bool(text)


@pytest.mark.parametrize("layer", [0, 3])
def test_weights_below_short_tokens_have_room(run: Run, layer: int, tmp_path: Path) -> None:
    run.tokens(layer, 1).save(file := tmp_path / "tokens.svg")
    small: dict[float, list[tuple[float, str]]] = {}  # by line
    for node in ElementTree.parse(file).iter(SVG):
        text = "".join(node.itertext()).strip()
        if text.replace(".", "").isdigit():
            small.setdefault(round(float(node.get("y", 0)), 1), []).append((float(node.get("x", 0)), text))
    lines = [sorted(line) for line in small.values() if len(line) > 1]
    assert lines
    for (one, text), (other, next_text) in (pair for line in lines for pair in pairwise(line)):
        assert other - one > 72 * NUMBER / LARGEST * (width(text) + width(next_text)) / 2


def test_arcs_leave_out_the_first_token_of_the_text_not_padding() -> None:
    run = unmask.load("story").run(["Yes.", "The cat saw the dog."], row=0, pad_side="left")
    pads = run.labels.count("<pad>")
    assert pads
    for by in ("tokens", "words"):
        header, _ = unpacked(run.arcs(0, 0, by=by).canvas().packet)
        assert header["firstToken"] == (pads if by == "tokens" else 1)
