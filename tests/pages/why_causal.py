"""The page Why causal as a test has it, without a browser."""

import html
import re
import time
from collections.abc import Iterator

from streamlit.testing.v1 import AppTest

from serving import training_job
from tests.apptest import key_of
from tests.pages.explore import ROOT, Explore

TEXT = "The king said to his son, and the old man went into the wood."


class WhyCausal(Explore):
    """One reader's page. Every run of it has to end without an exception."""

    def __init__(self, text: str | None = TEXT, /, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
        self.app.switch_page("pages/why_causal.py")
        self.app.query_params.update(query)
        if text is not None:
            self.app.session_state["why_text"] = text
        self.run()

    def step(self, number: int) -> "WhyCausal":
        """Go to one of the five steps."""
        return self.pick(why_step=number)

    def pick(self, **choices: object) -> "WhyCausal":
        """Take an option in each of these segmented controls or select boxes, by their keys."""
        for key, option in choices.items():
            kinds = ("why_head", "why_place", "why_token")
            box = self.app.selectbox if key in kinds else self.app.segmented_control
            box(key=key_of(self.app, key)).set_value(option)
            self.run()
        return self

    def press(self, key: str) -> "WhyCausal":
        self.app.button(key=key).click()
        self.run()
        return self

    def link(self) -> dict[str, str]:
        """The page's URL, after its name."""
        given = self.app.query_params.items()
        return {name: value if isinstance(value, str) else value[0] for name, value in given}

    def sentences(self) -> list[str]:
        """What the numbers say: of the training, of the head, or of the proof, by the step."""
        found = [one for one in self.html() if 'class="sentence"' in one]
        return [html.unescape(re.sub("<.*?>", "", one)) for one in found]

    def cards(self) -> list[tuple[str, ...]]:
        """(how trained, how run, loss, accuracy) of each card."""
        (grid,) = [one for one in self.html() if 'class="four"' in one]
        words = re.findall(r"trained <b>(\w+)</b> the mask, run <b>(\w+)</b>", grid)
        numbers = re.findall(r"<b>([^<]*)</b> nats/token.*?<b>([^<]*)</b> predicted correctly", grid)
        return [(*how, *map(html.unescape, what)) for how, what in zip(words, numbers, strict=True)]

    def copies(self) -> list[list[str]]:
        """The cells of each table of copy scores."""
        tables = [one for one in self.html() if 'class="copies"' in one]
        return [list(map(html.unescape, re.findall(r"<td[^>]*>(.*?)</td>", one))) for one in tables]

    def until_over(self) -> training_job.TrainingProgress:
        """Watch the training as the page does, until it is over."""
        deadline = time.monotonic() + 240  # on two free cores it takes about ten
        while not (progress := self["live_training"].watch()).over:
            assert time.monotonic() < deadline, progress
            time.sleep(0.1)
        return progress


def visit_that_ends() -> Iterator[WhyCausal]:
    """A page at its last step, whose training, if it has one, is stopped at the end."""
    one = WhyCausal(step="5")
    yield one
    if one["live_training"]:
        one["live_training"].stop()
