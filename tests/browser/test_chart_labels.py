"""Tests of charts' labels: which are shown where there is no room for all, and the titles of tooltips."""

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.browser.explore import Explore
from tests.browser.test_every_page import KINDS

WORDS = "One day the old king and his two sons went down to the sea to look for a ship that would take them home " * 2
SENTENCE = " ".join(WORDS.split()[:29])
CROWDED = """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap((chart) =>
  Object.keys(chart.layout).filter((name) => /^[xy]axis/.test(name)).flatMap((name) => {
    const ends = name[0] === 'x' ? ['left', 'right'] : ['top', 'bottom'];
    const labels = [...chart.querySelectorAll(`.${name.replace('axis', '')}tick text`)].filter(
      (label) => label.getBoundingClientRect().width);
    const boxes = labels.map((label) => label.getBoundingClientRect());
    boxes.sort((one, other) => one[ends[0]] - other[ends[0]]);
    const leading = labels.length && 0.3 * parseFloat(getComputedStyle(labels[0]).fontSize); // around a line's letters
    const crowded = boxes.some((box, index) => index && boxes[index - 1][ends[1]] > box[ends[0]] + leading);
    return crowded ? [`${name}: ${labels.map((label) => label.textContent)}`] : [];
  }))"""
POINT = """(chart, position) => {
  const { xaxis, _size: plot } = chart._fullLayout;
  return { x: xaxis._offset + xaxis.c2p(position), y: plot.t + plot.h / 3 };
}"""


def test_the_framed_row_keeps_its_label_in_a_part_that_is_zoomed_to(visit: Callable[..., Explore]) -> None:
    page = visit(f"text={'red blue ' * 25}&query=25", width=1000)
    for first, last in ((20, 30), (0, 51)):
        shown = page.chart.evaluate(
            """async (chart, range) => {
                 chart.own.data.zooms = false; // the page would draw the part alone
                 await window.Plotly.relayout(chart, { "yaxis.range": range });
                 const labels = [...chart.querySelectorAll(".ytick")];
                 return labels.flatMap((label, index) => (label.style.display === "none" ? [] : [index]));
               }""",
            [last + 0.5, first - 0.5],
        )
        assert 25 - first in shown
        steps = {below - above for above, below in pairwise(shown)}
        assert len(steps) == 1
        assert steps != {1}


def test_a_note_wider_than_its_picture_does_not_make_it_smaller(visit: Callable[..., Explore]) -> None:
    """Plotly would widen the axis of a small picture for its note: here the three pictures would be a third as wide."""
    rows = "One day%0AOne day the king and his two old sons went down to the sea to look for a ship that would sail"
    shown = visit(f"text={rows}&row=1&causal=false&show_padding=true", width=390).chart.evaluate(
        "(chart) => [chart._fullLayout.xaxis.range, chart._fullLayout.yaxis.range, chart.innerText]"
    )
    assert shown[0] == shown[1][::-1]
    assert shown[0][0] == -0.5
    assert "nothing to attend to" in shown[2]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("layers", f"across=token&causal=false&text={SENTENCE}"),
        ("mask_lab", f"section=steps&text={SENTENCE}"),
        ("why_causal", "step=4"),
    ],
)
def test_no_labels_of_any_axis_lie_over_each_other_on_a_phone(
    visit: Callable[..., Explore], path: str, query: str
) -> None:
    page = visit(query, kind=KINDS[path], width=390, height=844)
    assert page.page.locator(".js-plotly-plot").count()
    assert page.page.evaluate(CROWDED) == []


@pytest.mark.parametrize(("path", "query"), [("", "causal=false"), ("why_causal", "")])
def test_a_tooltip_of_losses_says_which_of_the_tokens_it_is_about(
    visit: Callable[..., Explore], path: str, query: str
) -> None:
    """For a token with a label on the axis, and for one without."""
    chart = visit(query, kind=KINDS[path]).page.locator(".st-key-loss_figure .js-plotly-plot")
    for position in (13, 14):
        chart.hover(position=chart.evaluate(POINT, position))
        expect(chart.locator(".hoverlayer .legendtitletext")).to_have_text(re.compile(rf"^{position}: \S"))
