"""The Explore page without a browser, for tests."""

import html
import re
from typing import Any

import numpy as np

from tests.pages.page import Page, array, plain
from tests.viz.packet import read

LINES = "Once upon a time\nThe little girl ran down the hill, over the bridge and through the wood."


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two heatmaps have the same cells, including gaps (NaN)."""
    return one.shape == other.shape and np.allclose(one, other, equal_nan=True)


class Explore(Page):
    """One user's Explore page, and the base of pages that share its parts."""

    def weights(self, xaxis: str = "x") -> np.ndarray:
        """Return the weights of a large heatmap, float [Q,K], NaN where blocked."""
        traces = self.figures()["head_figure"]["data"]
        (z,) = [trace["z"] for trace in traces if trace["name"] == "weights" and trace.get("xaxis", "x") == xaxis]
        return array(z)

    def labels(self) -> list[str]:
        """Return the tokens along the rows as they are displayed."""
        return [html.unescape(text) for text in self.figures()["head_figure"]["layout"]["yaxis"]["ticktext"]]

    def names(self) -> list[str]:
        """Return the names of the rows in the tooltip: position and token."""
        return [html.unescape(name) for name in self.trace("head_figure", "weights", xaxis="x")["y"]]

    def packet(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return the overview's header and its pixels [L,H,S,S]."""
        header, _, pixels = read(self.packets()["unmask_overview"])
        return header, pixels

    def candidates(self) -> list[tuple[str, str]]:
        """Return (token, probability) from the table of next tokens; two lists of it alternate row by row."""
        (table,) = [one for one in self.html() if 'class="numbers next"' in one]
        return re.findall(r'class="token">(.*?)</td><td class="number">(.*?)</td>', table)

    def leaks(self) -> list[tuple[str, str]]:
        """Return (now, standard) of the leak to later tokens and to padding: of the chosen head, then of all heads."""
        (table,) = [one for one in self.html() if 'class="numbers shares"' in one]
        return re.findall(r'<td class="number">(.*?)</td><td class="number">(.*?)</td>', table)

    def sentence(self) -> str:
        """Return the only sentence about the figure."""
        (found,) = [one for one in self.html() if 'class="sentence"' in one]
        return plain(found)

    def notes(self) -> list[str]:
        """Return the notes on the text: one is a caption, several are a list in an expander."""
        one = [text for text in self.boxes("caption") if text.startswith(":material/info:")]
        lists = [opens for opens in self.app.expander if opens.proto.icon == ":material/info:"]
        several = [text.value for opens in lists for text in opens.markdown]
        return [note.removeprefix("- ").replace("\\", "") for text in one + several for note in text.split("\n")]

    def scripts(self) -> list[str]:
        """Return the pieces of HTML that Streamlit does not sanitize: the app's own scripts."""
        return [one.proto.body for one in self.app.get("html") if one.proto.unsafe_allow_javascript]
