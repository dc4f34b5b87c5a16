"""A page of the app without a browser, for tests: Streamlit's AppTest, and access to what the browser is sent."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from streamlit.testing.v1 import AppTest

from serving.background import JobProgress
from tests.apptest import charts, key_of
from tests.viz.markup import plain

ROOT = Path(__file__).parents[2]
KINDS = ("selectbox", "toggle", "checkbox", "radio", "button_group", "slider", "select_slider", "number_input",
         "text_input", "text_area", "multiselect", "color_picker", "date_input", "time_input")  # fmt: skip


class Page:
    """One user's page. Every run of it must end without an exception."""

    SCRIPT = "app.py"

    def __init__(self, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=180)  # pages' links are relative to it
        if self.SCRIPT != "app.py":
            self.app.switch_page(self.SCRIPT)
        self.app.query_params.update(query)
        self.run()

    def run(self) -> Self:
        self.app.run()
        assert not self.app.exception, self.app.exception[0].stack_trace
        return self

    def go(self, script: str) -> Self:
        """Open another page."""
        self.app.switch_page(script)
        return self.run()

    def type(self, text: str) -> Self:
        """Replace the text."""
        return self.set(text=text)

    def set(self, **values: Any) -> Self:
        """Set widgets, by the names of their choices, in one run."""
        for name, value in values.items():
            self.widget(name).set_value(value)
        return self.run()

    def press(self, name: str, times: int = 1) -> Self:
        """Press a button, found by its key or label."""
        for _ in range(times):
            next(one for one in self.app.button if name in (one.key, one.label)).click()
            self.run()
        return self

    def widget(self, name: str) -> Any:
        return next(one for one in controls(self.app) if one.key == key_of(self.app, name))

    def __getitem__(self, name: str) -> Any:
        """Return a choice from the session state."""
        return self.app.session_state[name]

    def value(self, choice: str) -> Any:
        """Return the value that the widget of a choice shows."""
        return self.app.session_state[key_of(self.app, choice)]

    @property
    def url(self) -> dict[str, str]:
        """Return the choices in the page's address."""
        given = self.app.query_params.items()
        return {name: value if isinstance(value, str) else value[0] for name, value in given}

    def figures(self) -> dict[str, Any]:
        """Return the charts' JSON by key."""
        return {key: chart["figure"] for key, chart in charts(self.app).items()}

    def trace(self, figure: str, name: str, **where: Any) -> Any:
        """Return the only trace of a chart with this name and these other properties."""
        (found,) = [
            one
            for one in self.figures()[figure]["data"]
            if one["name"] == name and all(one.get(key) == value for key, value in where.items())
        ]
        return found

    def packets(self) -> dict[str, bytes]:
        """Return the bytes sent to each custom component, by component name."""
        return {one.proto.component_name: one.proto.bytes for one in self.app.get("bidi_component") if one.proto.bytes}

    def html(self) -> list[str]:
        """Return every piece of HTML on the page that Streamlit sanitizes."""
        return [one.proto.body for one in self.app.get("html") if not one.proto.unsafe_allow_javascript]

    def sentences(self) -> list[str]:
        """Return the page's sentences about its numbers, without tags."""
        found = re.findall(r'<p class="sentence".*?>(.*?)</p>', "".join(self.html()), re.DOTALL)
        return list(map(plain, found))

    def sentence(self) -> str:
        (found,) = self.sentences()
        return found

    def boxes(self, kind: str) -> list[str]:
        """Return the texts of all boxes of a kind (error, warning, caption …), without Markdown's backslashes."""
        return [re.sub(r"\\([^A-Za-z0-9])", r"\1", box.value) for box in self.app.get(kind)]

    def words(self) -> str:
        """Return all text of the page, without tags and without Markdown's backslashes."""
        kinds = ("markdown", "caption", "info", "error", "warning", "success")
        shown = re.sub("<style.*?</style>", "", " ".join(self.html()), flags=re.DOTALL)
        return " ".join(one for kind in kinds for one in self.boxes(kind)) + plain(shown)


class Here:
    """A background job that runs in this process: one of its own takes seconds to start."""

    def __init__(self, function: Callable, *arguments: object) -> None:
        self._job = function, arguments

    def finish(self, look: Callable[[JobProgress], object]) -> object:
        function, arguments = self._job
        return function(lambda report: look(JobProgress(reports=(report,))), *arguments)


def controls(app: AppTest) -> list[Any]:
    """Return every widget that has a value."""
    return [one for kind in KINDS for one in app.get(kind)]


def array(typed: Any) -> np.ndarray:
    """Decode a plotly array from its JSON."""
    if isinstance(typed, list):
        return np.array(typed, float)
    flat = np.frombuffer(base64.b64decode(typed["bdata"]), typed["dtype"])
    return flat.reshape([int(size) for size in typed["shape"].split(",")]) if "shape" in typed else flat
