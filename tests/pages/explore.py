"""Explore without a browser."""

import html
import re
from typing import Any

import numpy as np

from tests.pages.page import Page, array, plain
from tests.viz.packet import read

LINES = "Once upon a time\nThe little girl ran down the hill, over the bridge and through the wood."


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two pictures have the same cells, gaps included."""
    return one.shape == other.shape and np.allclose(one, other, equal_nan=True)


class Explore(Page):
    """One user's Explore, and what pages share with it."""

    def weights(self, xaxis: str = "x") -> np.ndarray:
        """float [Q,K] of a large heatmap, NaN where blocked."""
        traces = self.figures()["head_figure"]["data"]
        (z,) = [trace["z"] for trace in traces if trace["name"] == "weights" and trace.get("xaxis", "x") == xaxis]
        return array(z)

    def labels(self) -> list[str]:
        """The tokens along the rows, each as a reader sees it."""
        return [html.unescape(text) for text in self.figures()["head_figure"]["layout"]["yaxis"]["ticktext"]]

    def names(self) -> list[str]:
        """The rows' names in the tooltip: position and token."""
        return [html.unescape(name) for name in self.trace("head_figure", "weights", xaxis="x")["y"]]

    def packet(self) -> tuple[dict[str, Any], np.ndarray]:
        """The overview's header and its pixels [L,H,S,S]."""
        header, _, pixels = read(self.packets()["unmask_overview"])
        return header, pixels

    def candidates(self) -> list[tuple[str, str]]:
        """(token, probability) of the table of next tokens; where it has two lists, one after the other in each row."""
        (table,) = [one for one in self.html() if 'class="numbers next"' in one]
        return re.findall(r'class="token">(.*?)</td><td class="number">(.*?)</td>', table)

    def leaks(self) -> list[tuple[str, str]]:
        """(now, standard) of the head's leak to later tokens and to padding, then of all heads'."""
        (table,) = [one for one in self.html() if 'class="numbers shares"' in one]
        return re.findall(r'<td class="number">(.*?)</td><td class="number">(.*?)</td>', table)

    def sentence(self) -> str:
        """The one sentence about what is seen."""
        (found,) = [one for one in self.html() if 'class="sentence"' in one]
        return plain(found)

    def notes(self) -> list[str]:
        """What is said of the text: one note stands there, several are a list that opens."""
        one = [said for said in self.said("caption") if said.startswith(":material/info:")]
        lists = [opens for opens in self.app.expander if opens.proto.icon == ":material/info:"]
        several = [said.value for opens in lists for said in opens.markdown]
        return [note.removeprefix("- ").replace("\\", "") for said in one + several for note in said.split("\n")]

    def scripts(self) -> list[str]:
        """The pieces of HTML that Streamlit does not sanitize, for they are ours to run."""
        return [one.proto.body for one in self.app.get("html") if one.proto.unsafe_allow_javascript]
