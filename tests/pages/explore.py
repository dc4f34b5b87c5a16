"""Explore without a browser: Streamlit's own test runner, and what it sends to the page."""

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest

from tests.apptest import key_of
from tests.viz.packet import read

ROOT = Path(__file__).parents[2]
LINES = "Once upon a time\nThe little girl ran down the hill, over the bridge and through the wood."


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two pictures have the same cells, gaps included."""
    return one.shape == other.shape and np.allclose(one, other, equal_nan=True)


class Explore:
    """One reader's page. Every run of it has to end without an exception."""

    def __init__(self, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        self.app.query_params.update(query)
        self.run()

    def run(self) -> "Explore":
        self.app.run()
        assert not self.app.exception, self.app.exception[0].stack_trace
        return self

    def type(self, text: str) -> "Explore":
        """A text instead of the one that was there."""
        self.app.text_area(key="text").set_value(text)
        return self.run()

    def switch(self, name: str, on: bool) -> "Explore":
        """Set a mask switch."""
        self.app.toggle(key=key_of(self.app, name)).set_value(on)
        return self.run()

    def choose(self, **choices: Any) -> "Explore":
        """Take an option in each of these select boxes, by their choices."""
        for choice, option in choices.items():
            self.app.selectbox(key=key_of(self.app, choice)).set_value(option)
        return self.run()

    def __getitem__(self, name: str) -> Any:
        """A choice as the page keeps it."""
        return self.app.session_state[name]

    def value(self, choice: str) -> Any:
        """What the widget of a choice shows."""
        return self.app.session_state[key_of(self.app, choice)]

    @property
    def url(self) -> dict[str, str]:
        """The choices in the address."""
        return dict(self.app.query_params)

    def figures(self) -> dict[str, Any]:
        """The charts' JSON, by their key."""
        charts = self.app.get("plotly_chart")
        return {chart.proto.id.rpartition("-")[2]: json.loads(chart.proto.spec) for chart in charts}

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
        traces = self.figures()["head_figure"]["data"]
        trace = next(one for one in traces if one["name"] == "weights" and one["xaxis"] == "x")
        return [html.unescape(name) for name in trace["y"]]

    def packet(self) -> tuple[dict[str, Any], np.ndarray]:
        """The overview's header and its pixels [L,H,S,S]."""
        header, _, pixels = read(self.packets()["unmask_overview"])
        return header, pixels

    def packets(self) -> dict[str, bytes]:
        """What each of the browser's own parts is sent, by its name."""
        return {one.proto.component_name: one.proto.bytes for one in self.app.get("bidi_component") if one.proto.bytes}

    def candidates(self) -> list[tuple[str, str]]:
        """(token, probability) of the table of next tokens; where it has two lists, one after the other in each row."""
        (table,) = [one for one in self.html() if 'class="numbers next"' in one]
        return re.findall(r'class="token">(.*?)</td><td class="number">(.*?)</td>', table)

    def leaks(self) -> list[tuple[str, str]]:
        """(now, standard) of the head's leak to later tokens and to padding, then of all heads'."""
        (table,) = [one for one in self.html() if 'class="numbers"' in one]
        return re.findall(r'<td class="number">(.*?)</td><td class="number">(.*?)</td>', table)

    def sentence(self) -> str:
        """The one sentence about what is seen."""
        (found,) = [one for one in self.html() if 'class="sentence"' in one]
        return re.sub("<.*?>", "", found)

    def html(self) -> list[str]:
        """Every piece of HTML on the page that streamlit sanitizes."""
        return [one.proto.body for one in self.app.get("html") if not one.proto.unsafe_allow_javascript]

    def notes(self) -> list[str]:
        """What is said of the text: one note stands there, several are a list that opens."""
        one = [said.value for said in self.app.caption if said.value.startswith(":material/info:")]
        several = [said.value for opens in self.app.expander if opens.proto.icon == ":material/info:"
                   for said in opens.markdown]  # fmt: skip
        return [note.removeprefix("- ").replace("\\", "") for said in one + several for note in said.split("\n")]

    def scripts(self) -> list[str]:
        """The pieces that it does not, for they are ours to run."""
        return [one.proto.body for one in self.app.get("html") if one.proto.unsafe_allow_javascript]

    def said(self, kind: str) -> list[str]:
        """The texts of all boxes of a kind, error, warning or info, without markdown's backslashes."""
        return [re.sub(r"\\([^A-Za-z0-9])", r"\1", box.value) for box in getattr(self.app, kind)]


def array(typed: Any) -> np.ndarray:
    """A plotly array out of its JSON."""
    if isinstance(typed, list):
        return np.array(typed, float)
    flat = np.frombuffer(base64.b64decode(typed["bdata"]), typed["dtype"])
    return flat.reshape([int(size) for size in typed["shape"].split(",")]) if "shape" in typed else flat
