"""The Why causal page without a browser, for tests."""

import re
import time
from collections.abc import Iterator
from typing import Self

from serving import training_job
from tests.pages.explore import Explore
from tests.pages.page import plain

TEXT = "The king said to his son, and the old man went into the wood."


class WhyCausal(Explore):
    """One user's page."""

    SCRIPT = "pages/why_causal.py"

    def __init__(self, text: str | None = TEXT, /, **query: str) -> None:
        super().__init__(**query)
        if text is not None:
            self.type(text)

    def type(self, text: str) -> Self:
        return self.set(why_text=text)

    def step(self, number: int) -> Self:
        """Open one of the five steps."""
        return self.set(why_step=number)

    def cards(self) -> list[tuple[str, ...]]:
        """Return (how trained, how run, loss, accuracy) of each card."""
        (grid,) = [one for one in self.html() if 'class="four"' in one]
        words = re.findall(r"trained <b>(\w+)</b> the mask, run <b>(\w+)</b>", grid)
        numbers = re.findall(r"<b>([^<]*)</b> nats/token.*?<b>([^<]*)</b> predicted correctly", grid)
        return [(*how, *map(plain, what)) for how, what in zip(words, numbers, strict=True)]

    def copies(self) -> list[list[str]]:
        """Return the cells of each table of copy scores."""
        tables = [one for one in self.html() if 'class="copies"' in one]
        return [list(map(plain, re.findall(r"<td[^>]*>(.*?)</td>", one))) for one in tables]

    def until_over(self) -> training_job.TrainingProgress:
        """Poll the training as the page does, until it is over."""
        deadline = time.monotonic() + 240  # it takes about ten on two free cores
        while not (progress := self["live_training"].watch()).over:
            assert time.monotonic() < deadline, progress
            time.sleep(0.1)
        return progress


def visit_that_ends() -> Iterator[WhyCausal]:
    """Yield a page at its last step, whose training, if any, is stopped afterwards."""
    one = WhyCausal(step="5")
    yield one
    if one["live_training"]:
        one["live_training"].stop()
