"""Zooming into the large heatmap: a choice of the page that is in its link, exact, and undone by one press."""

import numpy as np
import pytest

from tests.pages.explore import Explore

TEXT = "the old mill by the river and " * 30  # more tokens than the heatmap has cells


def test_it_is_exact_where_the_whole_is_reduced() -> None:
    page, other = Explore(text=TEXT), Explore(text=TEXT, zoom="140-151,3-9", causal="false")
    assert len(page.weights()) < 140
    assert other.weights().shape == (12, 7)
    assert other.names()[0].startswith("140: ")
    assert np.isfinite(other.weights()).all()
    other.set(causal=True)
    assert other.weights().shape == (12, 7)
    assert other.url["zoom"] == "140-151,3-9"
    other.press("zoom_out")
    assert other.weights().shape == page.weights().shape
    assert "zoom" not in other.url


PETER = "Peter lost his hat. He saw a dog. The dog ran to Peter."


@pytest.mark.parametrize(("zoom", "note"), [("0-5,8-16", "Hatched cells are blocked"), ("8-16,0-5", "of this part")])
def test_a_part_says_of_rows_and_cells_what_holds_in_the_whole(zoom: str, note: str) -> None:
    page = Explore(text=PETER, zoom=zoom)
    assert page.weights().shape == (6, 9)[:: 1 if zoom.startswith("0") else -1]
    (key,) = [html for html in page.html() if "ells are blocked" in html or "ell of" in html]
    assert note in key
    assert "No cell is blocked." not in key
    assert "nothing" not in key + str(page.figures()["head_figure"]["layout"])


@pytest.mark.parametrize("zoom", ["5-3,1-2", "900-999,1-2", "nonsense", "0-99999,0-99999"])
def test_a_part_that_is_none_shows_the_whole(zoom: str) -> None:
    assert Explore(zoom=zoom).weights().shape == Explore().weights().shape


def test_another_text_is_shown_whole() -> None:
    page = Explore(text="one two three four five six", zoom="2-3,1-2")
    assert page.weights().shape == (2, 2)
    page.type("another text of some length, of which nothing was chosen")
    assert len(page.weights()) > 8
