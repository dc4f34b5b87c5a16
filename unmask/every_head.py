"""All heads at once that show themselves, and their leak."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from i18n import say
from unmask.shown import Live, Printed, Shown
from viz.heads.cells import weight_text
from viz.numbers import leak_grid, mean_share, percent
from viz.saved.explorer import CHANGES, AllHeads, explorer_page
from viz.saved.standalone import Canvas, page

if TYPE_CHECKING:
    from unmask.printed import Draw, How

ABSENT = "{}: this picture has no room for it; ask for it alone."


@dataclass(frozen=True, eq=False, repr=False)
class Heads(Printed):
    """Every head at a glance, and large the one that is picked. queries: how many tokens look."""

    name: str
    drawn: AllHeads
    queries: int

    @property
    def of(self) -> str:  # type: ignore[override]
        """The run."""
        return self.name

    def numpy(self) -> np.ndarray:
        """The thumbnails, float32 [L,H,S,S']: the largest weight of each patch, S = Q where there is room."""
        return self.drawn.thumbnails

    def canvas(self) -> Canvas:
        """The overview alone, and its bytes."""
        return Canvas("overview", self.drawn.overview())

    def page(self) -> str:
        """A whole HTML document that needs no network."""
        return explorer_page(repr(self), self.drawn, absent=ABSENT)

    @property
    def heading(self) -> str:
        """What stands above it in print."""
        return say("All heads")

    def drawing(self) -> "tuple[Draw, How]":
        """What draws it, and how to read it."""
        from unmask import printed

        return printed.every(self.drawn, self.queries)

    def __repr__(self) -> str:
        layers, heads = self.drawn.thumbnails.shape[:2]
        return f"{self.name}: {layers} layers × {heads} heads"


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Live):
    """Every head of a run less another run's: drawn.heads holds changes. largest: float32 [L,H], 0 to 1, the largest
    change of a weight of each head. words: what becomes of the predictions, as HTML."""

    name: str
    drawn: AllHeads
    largest: np.ndarray
    words: str

    def numpy(self) -> np.ndarray:
        """The largest change of each head, float32 [L,H]."""
        return self.largest

    def canvas(self) -> Canvas:
        """The overview alone, and its bytes."""
        return Canvas("overview", self.drawn.overview())

    def page(self) -> str:
        """A whole HTML document that needs no network."""
        return explorer_page(repr(self), self.drawn, kind=CHANGES, absent=ABSENT, above=f"<p>{self.words}</p>")

    def __repr__(self) -> str:
        layer, head = np.unravel_index(int(self.largest.argmax()), self.largest.shape)
        most = weight_text(self.largest[layer, head])
        return f"{self.name}: {self.drawn.names[layer][head]} changes most, a weight by {most}"


@dataclass(frozen=True, eq=False, repr=False)
class LeakPicture(Shown):
    """Shares of every head's attention, 0 to 1, on later tokens and on padding: float32 [L,H]; NaN where there is none.

    names: of each layer's heads.
    """

    name: str
    future: np.ndarray
    padding: np.ndarray
    names: list[list[str]]

    def numpy(self) -> np.ndarray:
        """float32 [2,L,H]: on later tokens, on padding."""
        return np.stack([self.future, self.padding])

    def page(self) -> str:
        """A whole HTML document that needs no network."""
        grids = (leak_grid(self.future, self.names, "later tokens"), leak_grid(self.padding, self.names, "padding"))
        return page(repr(self), grids)

    def __repr__(self) -> str:
        later, pads = (percent(mean_share(shares)) for shares in (self.future, self.padding))
        return f"{self.name}: {later} of all attention on later tokens, {pads} on padding"
