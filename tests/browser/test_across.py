"""Tests of Across layers, Ablation and Compare in Chromium: the main path of each, and what fits on the screen."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.across import AandB, AcrossLayers, HeadsOff
from tests.browser.explore import Explore

Visit = Callable[..., AcrossLayers]


def test_from_the_lens_to_one_token_to_all(visit: Visit) -> None:
    page = visit(kind=AcrossLayers)
    assert page.columns() == ["position", "embedding", "L0", "L1", "L2", "L3", "L4", "L5 the model"]
    before = page.sentence()
    assert "ranked first from L4 on" in before
    page.toggle("Causal")
    assert "Under the standard masks" in page.sentence()
    page.pick("One query, layer by layer").choose("Over heads", "flow")
    assert "the most that can flow" in page.sentence()
    assert "over=flow" in page.page.url
    page.pick("All queries")
    assert page.weights().shape == (23, 23)
    page.page.go_back()
    page.page.wait_for_function("() => document.querySelector('p.sentence')?.innerText.includes('can flow')")


def test_a_map_zoomed_to_blocked_cells_is_drawn_and_can_be_dragged_on(visit: Visit) -> None:
    page = visit("across=all&zoom=2-6,9-14&text=He saw a dog. The dog ran to Peter. A dog", kind=AcrossLayers)
    chart = page.page.locator(".chart:has(.xtick)")
    expect(chart).to_have_attribute("aria-busy", "false")
    assert chart.locator(".xtick").count() == 5
    assert chart.locator(".nsewdrag").bounding_box()["width"] > 200


def test_no_table_moves_sideways_on_a_tablet(visit: Visit) -> None:
    tables = visit(kind=HeadsOff, width=820).page.locator("table.numbers")
    widths = tables.evaluate_all("all => all.map((table) => [table.scrollWidth, table.parentElement.clientWidth])")
    assert widths
    assert all(table <= room + 1 for table, room in widths), widths


@pytest.mark.parametrize("kind", [Explore, AandB])
def test_a_picture_is_as_wide_as_its_box_where_the_window_is_low(visit: Visit, kind: type[Explore]) -> None:
    """In a wider picture, the colour bar and the small pictures would be cut off."""
    page = visit("causal=false", width=1920, height=800, kind=kind)
    widths = page.page.evaluate(
        """() => [...document.querySelectorAll('[class*="st-key-pair_"], [class*="st-key-one_"]')].map((room) =>
          [...room.querySelectorAll('.chart, .main-svg')].map((element) => element.clientWidth))"""
    )
    assert widths
    assert all(len(set(some)) == 1 for some in widths), widths


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
def test_a_and_b_use_their_columns_and_their_tokens_are_in_sight(visit: Visit, width: int, height: int) -> None:
    page = visit(kind=AandB, width=width, height=height)
    for key in "ab":
        chart = page.page.locator(f".st-key-head_{key} .js-plotly-plot")
        cells, tokens = (chart.locator(part).last.bounding_box() for part in (".heatmaplayer image", ".xtick text"))
        assert cells["width"] >= 0.245 * width
        assert tokens["y"] + tokens["height"] <= height
        title = page.page.locator(f".st-key-above_{key} h4")
        assert title.bounding_box()["y"] + title.bounding_box()["height"] <= cells["y"]
