"""The labels that are left beside the rows of a heatmap where there is no room for all."""

from collections.abc import Callable
from itertools import pairwise

from tests.browser.explore import Explore


def test_the_framed_row_keeps_its_label_in_a_part_that_is_zoomed_to(visit: Callable[..., Explore]) -> None:
    page = visit(f"text={'red blue ' * 25}&query=25", width=1000)
    for first, last in ((20, 30), (0, 51)):
        shown = page.chart.evaluate(
            """async (chart, range) => {
                 chart.own.data.zooms = false; // the page would draw the part alone
                 await window.Plotly.relayout(chart, { "yaxis.range": range });
                 const labels = [...chart.querySelectorAll(".ytick")];
                 return labels.flatMap((label, place) => (label.style.display === "none" ? [] : [place]));
               }""",
            [last + 0.5, first - 0.5],
        )
        assert 25 - first in shown
        steps = {below - above for above, below in pairwise(shown)}
        assert len(steps) == 1
        assert steps != {1}
