"""One head that shows itself: in a notebook, live or exported, in a file, or as a live widget. And gives numpy.

Every picture is a page that needs nothing else, in a frame: a live widget is empty in an exported notebook.
"""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from i18n import together
from model.files import write
from model.heads.view import HeadView
from viz.heads import arcs
from viz.heads.cells import around, weight_text
from viz.heads.picture import changed, difference_packet, picture_packet
from viz.heads.tokens import left_out, light_words, tokens_packet
from viz.html import tag
from viz.numbers import Candidate, chance, next_token_table
from viz.saved.explorer import part_words
from viz.saved.standalone import Canvas, frame, page

if TYPE_CHECKING:
    from unmask.printed import Draw, How

HTML = "html", "htm"
PRINTS = "png", "svg", "pdf"
MOST_TOKENS = 256  # of each side, in a picture
HEIGHT = 620  # pixels, until the page has measured itself


class Shown(ABC):
    """Has a page of its own; its repr is one line, and the page's title."""

    @abstractmethod
    def page(self) -> str:
        """A whole HTML document that needs no network."""

    def file(self, kind: str = "html") -> bytes:
        """The page, as the content of a file. Raises ValueError for another kind."""
        if kind not in HTML:
            raise ValueError(f"expected a file of {self.kinds}, got {kind!r:.40}")
        return self.page().encode("utf-8", "backslashreplace")

    @property
    def kinds(self) -> str:
        """The kinds of file that `save` writes, in words."""
        return "HTML (.html)"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file of the kind that its name ends in; without an ending, HTML.

        Raises ValueError for a kind that this picture cannot be, OSError where it cannot be written.
        """
        if not isinstance(path, str | os.PathLike) or not Path(path).name:
            raise ValueError(f"expected a file name, got {path!r:.80}")
        path = Path(path)
        write(path, self.file(path.suffix.lower().removeprefix(".") or "html"))
        return path

    def _repr_html_(self) -> str:
        return frame(self.page(), repr(self), HEIGHT)


class Live(Shown):
    """Has one view that a live widget draws too."""

    @abstractmethod
    def canvas(self) -> Canvas:
        """The view, and its bytes."""

    def widget(self) -> Any:
        """A live widget (anywidget), whose traits are what is picked in it. Needs `pip install unmask[notebook]`."""
        from unmask.widget import widget  # nobody else needs anywidget

        return widget(self.canvas())


class Printed(Live):
    """Can be saved as PNG, SVG and PDF too. of: what it is of (the model, how many tokens, which masks), or ""."""

    name: str
    of: str

    @property
    def kinds(self) -> str:
        """The kinds of file that `save` writes, in words."""
        return "HTML, PNG, SVG or PDF (.html, .png, .svg, .pdf)"

    def file(self, kind: str = "html") -> bytes:
        """The page or the picture, as the content of a file: "html", "png", "svg" or "pdf"."""
        if kind not in PRINTS:
            return super().file(kind)
        from unmask import printed  # matplotlib takes a second

        return printed.file(self.heading, self.of, kind, *self.drawing())

    @property
    def heading(self) -> str:
        """What stands above it in print."""
        return self.name

    @abstractmethod
    def drawing(self) -> "tuple[Draw, How]":
        """What draws it, and how to read it."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadPicture(Printed):
    """One head as a heatmap. query: the position whose row is framed."""

    name: str
    view: HeadView
    query: int
    of: str = ""

    @property
    def weights(self) -> np.ndarray:
        """float32 [Q,K], 0 to 1; blocked cells exactly 0."""
        return self.view.weights

    @property
    def scaled(self) -> np.ndarray:
        """float32 [Q,K], the scores before masking."""
        return self.view.scaled

    @property
    def blocked(self) -> dict[str, np.ndarray]:
        """For each mask that is on: bool [Q,K], True = it blocks the cell."""
        return self.view.blocked

    def numpy(self) -> np.ndarray:
        """The weights."""
        return self.view.weights

    def difference(self, other: "HeadPicture") -> "HeadDifference":
        """These weights less another head's over the same tokens. Raises ValueError for other tokens."""
        if not isinstance(other, HeadPicture):
            raise ValueError(f"expected another head, got {type(other).__name__}")
        of = self.of if self.of == other.of else f"{self.of} − {other.of}"
        return HeadDifference(f"{self.name} − {other.name}", changed(self.view, other.view), self.query, of)

    def canvas(self) -> Canvas:
        """The heatmap, and its bytes."""
        return Canvas("heatmap", picture_packet(self._drawn(), name=self.name, query=self.query))

    def page(self) -> str:
        """A whole HTML document that needs no network."""
        return page(repr(self), [self.canvas(), tag("p", self._said())])

    def drawing(self) -> "tuple[Draw, How]":
        """What draws it, and how to read it."""
        from unmask import printed

        return printed.head(self._drawn())

    def _said(self) -> str:
        """What of the head is not shown."""
        return left_out(self.view, self._drawn(), self.query)

    def _drawn(self) -> HeadView:
        """The query and what stands around it."""
        return around(self.view, (0, len(self.view.queries)), self.query, MOST_TOKENS)

    def __repr__(self) -> str:
        queries, keys = self.view.weights.shape
        most = weight_text(self.view.weights.max(initial=0.0))
        return f"{self.name}: {queries} queries × {keys} keys, largest weight {most}"


@dataclass(frozen=True, eq=False, repr=False)
class TokensPicture(HeadPicture):
    """One head as its text: the token pointed at lights those that it looks at. across: the keys are another text."""

    across: bool = False

    def canvas(self) -> Canvas:
        """The text, and its bytes."""
        view = self._drawn()
        among = view.first, view.first + len(view.queries)
        packet = tokens_packet(view, name=self.name, query=self.query, among=among, across=self.across)
        return Canvas("tokens", packet)

    def drawing(self) -> "tuple[Draw, How]":
        """What draws it, and how to read it."""
        from unmask import printed

        return printed.text(self.view, self._drawn(), self.query, own=not self.across)

    def _said(self) -> str:
        """What is not shown, and what the light means where it is not the usual."""
        return together(filter(None, (super()._said(), light_words(self._drawn()))))


@dataclass(frozen=True, eq=False, repr=False)
class HeadDifference(Printed):
    """One head's weights less another's. view.blocked: the cells that both block."""

    name: str
    view: HeadView
    query: int
    of: str = ""

    def numpy(self) -> np.ndarray:
        """float32 [Q,K], -1 to 1."""
        return self.view.weights

    def canvas(self) -> Canvas:
        """The heatmap, and its bytes."""
        return Canvas("heatmap", difference_packet(self._drawn(), name=self.name, query=self.query))

    def page(self) -> str:
        """A whole HTML document that needs no network."""
        return page(repr(self), [self.canvas(), tag("p", part_words(self.view, self._drawn()))])

    def drawing(self) -> "tuple[Draw, How]":
        """What draws it, and how to read it."""
        from unmask import printed

        return printed.change(self._drawn())

    def _drawn(self) -> HeadView:
        """The query and what stands around it."""
        return around(self.view, (0, len(self.view.queries)), self.query, MOST_TOKENS)

    def __repr__(self) -> str:
        return f"{self.name}: largest change {weight_text(np.abs(self.view.weights).max(initial=0.0))}"


@dataclass(frozen=True, eq=False, repr=False)
class Arcs(Printed):
    """Heads of one layer as lines between tokens that look, on the left, and those looked at.

    names, views: of each head, the first one's line in the first colour.
    """

    names: list[str]
    views: list[HeadView]
    query: int
    of: str = ""
    first_token: int = 0
    across: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The heads'."""
        return ", ".join(self.names)

    def numpy(self) -> np.ndarray:
        """The weights of each head, float32 [n,Q,K]."""
        return np.stack([view.weights for view in self.views])

    def canvas(self) -> Canvas:
        """The lines, and their bytes."""
        parts = self._parts()
        among = parts[0].first, parts[0].first + len(parts[0].queries)
        packet = arcs.arcs_packet(
            parts, self.names, query=self.query, among=among, first_token=self.first_token, across=self.across
        )
        return Canvas("arcs", packet)

    def page(self) -> str:
        """A whole HTML document that needs no network."""
        return page(repr(self), [self.canvas(), tag("p", left_out(self.views[0], self._parts()[0], self.query))])

    def drawing(self) -> "tuple[Draw, How]":
        """What draws it, and how to read it."""
        from unmask import printed

        return printed.lines(self.views[0], self._parts(), self.names, self.query)

    def _parts(self) -> list[HeadView]:
        """Of each head, the query and what stands around it."""
        whole = (0, len(self.views[0].queries))
        return [arcs.shown(view, whole, self.query) for view in self.views]

    def __repr__(self) -> str:
        queries, keys = self.views[0].weights.shape
        return f"{self.name}: {queries} queries × {keys} keys"


@dataclass(frozen=True, eq=False, repr=False)
class Predicted(Shown):
    """The likeliest next tokens, the likeliest first, with their probabilities, 0 to 1."""

    name: str
    candidates: list[Candidate]

    def numpy(self) -> np.ndarray:
        """The probabilities, float64 [N]."""
        return np.array([one.probability for one in self.candidates])

    def page(self) -> str:
        """A whole HTML document that needs no network."""
        return page(repr(self), [Markup(next_token_table(self.candidates, self.candidates, changed=False))])

    def __repr__(self) -> str:
        first = self.candidates[0]
        return f"{self.name}: {first.label} with {chance(first.probability)}"
