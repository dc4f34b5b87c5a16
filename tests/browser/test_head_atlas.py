"""Tests of the page Head atlas in Chromium: a click on a point chooses its head, and the link restores it."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.explore import Explore

STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const scatter = document.querySelector('.st-key-atlas_scatter .js-plotly-plot');
  const bars = document.querySelector('.st-key-atlas_distances .js-plotly-plot');
  if (app?.dataset.testScriptState !== 'notRunning' || !scatter?._fullData || !bars?._fullData) return null;
  const text = (query) => [...document.querySelectorAll(query)].map((element) => element.innerText).join('|');
  return JSON.stringify([
    location.search, scatter._fullData.map((trace) => [trace.x, trace.y]), bars._fullData.map((trace) => trace.y),
    text('.sentence'), text('table.numbers'), text('.deciles'),
  ]);
}"""
POINT = """(chart, head) => {
  const trace = chart._fullData.find((one) => one.name === 'heads');
  const at = trace.customdata.findIndex((one) => one[0] === head[0] && one[1] === head[1]);
  const box = chart.getBoundingClientRect(), {xaxis, yaxis} = chart._fullLayout;
  return [box.x + xaxis._offset + xaxis.d2p(trace.x[at]), box.y + yaxis._offset + yaxis.d2p(trace.y[at])];
}"""


class HeadAtlas(Explore):
    """The page Head atlas, once it has settled."""

    PATH = "head_atlas"
    STATE = STATE

    def click_head(self, layer: int, head: int) -> None:
        """Click the point of a head, and wait for the page to change."""
        chart = self.page.locator(".st-key-atlas_scatter .js-plotly-plot")
        x, y = chart.evaluate(POINT, [layer, head])
        self.after(lambda: self.page.mouse.click(x, y))

    def sentences(self) -> str:
        return "|".join(self.page.locator(".sentence").all_inner_texts())

    def pick(self, name: str) -> None:
        """Choose an option of a segmented control, and wait for the page to change."""
        self.after(lambda: self.page.get_by_role("radio", name=name, exact=True).click())


@pytest.fixture
def atlas(visit: Callable[..., Any]) -> Callable[..., HeadAtlas]:
    return lambda query="", **more: visit(query, kind=HeadAtlas, **more)


def test_a_click_on_a_point_shows_its_head_and_the_link_brings_it_back(atlas: Callable[..., HeadAtlas]) -> None:
    page = atlas("y=previous&x=entropy")
    assert "L4 H0 matches first token" in page.sentences()
    page.click_head(0, 3)
    assert "L0 H3 matches previous token" in page.sentences()
    assert "layer=0&head=3" in page.page.url
    page.pick("Random")
    assert "induction L5 H2, " in page.sentences()
    again = atlas(page.page.url.partition("?")[2])
    assert again.sentences() == page.sentences()


def test_it_is_taken_away_as_a_picture_of_what_is_shown(atlas: Callable[..., HeadAtlas]) -> None:
    page = atlas("y=previous&x=entropy&layer=2&head=5&causal=false").page
    page.get_by_role("button", name="Picture for print").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG", exact=True).click()
    assert download.value.suggested_filename == "head_atlas.svg"
    lines = re.findall(r"<text[^>]*>([^<]*)</text>", download.value.path().read_text(encoding="utf-8"))
    drawn = " ".join(lines)
    for words in (
        "L2 H5",
        "L0 H3",
        "entropy, bits",
        "previous token",
        "The attention heads of story, 36 in all, measured over",
        "Texts: the sample included with Unmask. Masks: padding; off: causal. Each point is a head",
    ):
        assert words in drawn


def test_the_example_that_is_offered_is_one_of_the_head(atlas: Callable[..., HeadAtlas]) -> None:
    label = "See one on Explore, with all weights"
    expected = atlas("layer=5&head=0").shown(label)
    page = atlas("layer=4&head=0")
    assert page.shown(label) != expected
    page.choose("Layer", "5")
    assert page.shown(label) == expected


def test_a_mark_finds_a_head_and_its_button_shows_it(atlas: Callable[..., HeadAtlas]) -> None:
    page = atlas("atlas_section=find&back=1")
    page.after(lambda: page.page.get_by_role("button", name="Show L0 H3").click())
    assert "L0 H3 matches previous token" in page.sentences()


@pytest.mark.parametrize("query", ["atlas_section=find", "atlas_section=all"])
def test_nothing_is_cut_off(atlas: Callable[..., HeadAtlas], query: str) -> None:
    page = atlas(query)
    assert [look for look in page.looks(1280, 1920, 390, schemes=["light"]) if page.sticks_out()] == []
