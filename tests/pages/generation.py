"""The Generation page as a test has it, without a browser, and what it has to show."""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest

from model.base import Model
from model.kv_cache import batch_of
from model.sampling import Continuation, Sampling, draw
from tests.viz.packet import read_cells

ROOT = Path(__file__).parents[2]
PROMPT = "Once upon a time"
SAMPLING = Sampling(0.8, 40, 0.95, 1)  # the page's own


class Page:
    """One reader's page. Every run of it has to end without an exception."""

    def __init__(self, text: str | None = PROMPT, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)  # to which a page's links are relative
        self.app.switch_page("pages/generation.py")
        self.app.query_params.update(query | ({} if text is None else {"text": text}))
        self.run()

    def run(self) -> "Page":
        self.app.run()
        assert not self.app.exception, self.app.exception[0].stack_trace
        return self

    def press(self, key: str, times: int = 1) -> "Page":
        for _ in range(times):
            self.app.button(key=key).click()
            self.run()
        return self

    def section(self, name: str) -> "Page":
        self.app.button_group(key="generation_section").set_value(name)
        return self.run()

    def look_at(self, place: int) -> "Page":
        self.app.selectbox(key="choice_at").set_value(place)
        return self.run()

    def buttons(self) -> dict[str, bool]:
        """Whether each can be pressed, by key."""
        return {one.key: not one.disabled for one in self.app.button}

    @property
    def path(self) -> Continuation:
        return self.app.session_state.writing.path

    def html(self) -> str:
        """All of the page's own HTML."""
        return "".join(one.proto.body for one in self.app.get("html") if not one.proto.unsafe_allow_javascript)

    def sentences(self) -> list[str]:
        found = re.findall(r'<p class="sentence".*?>(.*?)</p>', self.html())
        return [html.unescape(re.sub("<.*?>", "", one)) for one in found]

    def text(self) -> str:
        """What the reader reads."""
        (found,) = re.findall(r'<p class="writing" translate="no">(.*?)</p>', self.html(), re.DOTALL)
        return html.unescape(re.sub("<.*?>", "", found))

    def candidates(self) -> list[tuple[str, str, str]]:
        """Label, probability by the model and that it is drawn with, from top to bottom."""
        labels = [re.sub(r"\\(.)", r"\1", one.label) for one in self.app.button if one.key.startswith("candidate_")]
        rows = re.findall(r'class="chance[^"]*" title.*?class="share">(.*?)<.*?class="share">(.*?)<', self.html())
        return [(label, *map(html.unescape, row)) for label, row in zip(labels, rows, strict=True)]

    def figures(self) -> dict[str, Any]:
        charts = self.app.get("plotly_chart")
        return {chart.proto.id.rpartition("-")[2]: json.loads(chart.proto.spec) for chart in charts}

    def weights(self) -> np.ndarray:
        """float [Q,K] of the heatmap."""
        (component,) = self.app.get("bidi_component")
        return read_cells(component.proto.bytes)[1]

    def table(self) -> list[list[str]]:
        """The cells of the table of differences, the head left out."""
        (found,) = re.findall(r'<table class="numbers differences">(.*?)</table>', self.html())
        return [re.findall("<td.*?>(.*?)</td>", row) for row in found.split("<tr>")[2:]]

    def said(self, kind: str) -> str:
        boxes = [re.sub(r"\\([^A-Za-z0-9])", r"\1", box.value) for box in getattr(self.app, kind)]
        return "\n".join(boxes)


def written_by(model: Model, steps: int, sampling: Sampling = SAMPLING, text: str = PROMPT) -> Continuation:
    """What the page has to write."""
    path = Continuation(tuple(model.encode([text]).ids[0].tolist()))
    for _ in range(steps):
        logits = model.run(batch_of(model, path.ids)).logits[0, -1]
        path = path.plus(draw(logits, sampling, len(path.ids)).token)
    return path
