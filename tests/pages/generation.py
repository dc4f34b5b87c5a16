"""The Generation page without a browser, for tests, and the text that it must generate."""

import re
from typing import Self

import numpy as np

from model.base import Model
from model.kv_cache import batch_of
from model.sampling import Continuation, Sampling, draw
from tests.pages.page import Page, plain
from tests.viz.packet import read_cells

PROMPT = "Once upon a time"
SAMPLING = Sampling(0.8, 40, 0.95, 1)  # the page's defaults


class Generation(Page):
    """One user's Generation page."""

    SCRIPT = "pages/generation.py"

    def __init__(self, text: str | None = PROMPT, **query: str) -> None:
        super().__init__(**query | ({} if text is None else {"text": text}))

    def buttons(self) -> dict[str, bool]:
        """Return whether each button is enabled, by key."""
        return {one.key: not one.disabled for one in self.app.button}

    def choose(self, rank: int) -> Self:
        """Press the button of a candidate, counted from the top."""
        return self.press([key for key in self.buttons() if key.startswith("candidate_")][rank])

    @property
    def path(self) -> Continuation:
        return self.app.session_state.writing.path

    def text(self) -> str:
        """Return the text as it is displayed."""
        (found,) = re.findall(r'<p class="writing" translate="no">(.*?)</p>', "".join(self.html()), re.DOTALL)
        return plain(found)

    def candidates(self) -> list[tuple[str, str, str]]:
        """Return (label, the model's probability, sampling probability) of each candidate, from top to bottom."""
        labels = [re.sub(r"\\(.)", r"\1", one.label) for one in self.app.button if one.key.startswith("candidate_")]
        shares = r'class="chance[^"]*" title.*?class="share">(.*?)<.*?class="share">(.*?)<'
        rows = re.findall(shares, "".join(self.html()))
        return [(label, *map(plain, row)) for label, row in zip(labels, rows, strict=True)]

    def weights(self) -> np.ndarray:
        """Return the weights of the heatmap, float [Q,K]."""
        (packet,) = self.packets().values()
        return read_cells(packet)[1]

    def table(self) -> list[list[str]]:
        """Return the cells of the table of differences without its header row."""
        (found,) = re.findall(r'<table class="numbers differences">(.*?)</table>', "".join(self.html()))
        return [re.findall("<td.*?>(.*?)</td>", row) for row in found.split("<tr>")[2:]]


def written_by(
    model: Model, steps: int, sampling: Sampling = SAMPLING, text: str = PROMPT, begun: Continuation | None = None
) -> Continuation:
    """Return the continuation that the page must generate in `steps` steps, from `begun` if given."""
    path = begun or Continuation(tuple(model.encode([text]).ids[0].tolist()))
    for _ in range(steps):
        logits = model.run(batch_of(model, path.ids)).logits[0, -1]
        path = path.plus(draw(logits, sampling, len(path.ids)).token)
    return path
