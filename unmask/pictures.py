"""Pictures of heads, masks and numbers: each displays itself in a notebook, is saved as a file, and has its numbers.

A picture is displayed as a self-contained page in a frame: a live widget alone is empty in an exported notebook.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from markupsafe import Markup

from i18n import together
from model.errors import items
from model.files import write
from model.heads.merging import over_queries
from model.heads.view import HeadView, cropped
from viz.components import VIEWS, source, style
from viz.heads.cells import around, changed, difference_packet, picture_packet, weight_text
from viz.heads.tokens import MAX_ARC_TOKENS, arcs_packet, colour_scale_sentence, left_out, tokens_packet
from viz.html import tag
from viz.numbers import Candidate, chance, key_count, layer_count, next_token_table, query_count
from viz.saved.explorer import part_words
from viz.saved.standalone import Canvas, frame, page

if TYPE_CHECKING:
    import pandas as pd

HTML, PRINT = ("html", "htm"), ("png", "svg", "pdf")
MAX_TOKENS = 256  # most queries and most keys in a picture
FRAME_HEIGHT = 620  # pixels, until the page has measured itself
ABSENT = "{}: this picture has no room for it; ask for it alone."
TRAITS = {  # a widget's traits by its view: what a user picks in it
    "overview": ("pick",),
    "heatmap": ("query",),
    "tokens": ("query", "pins", "towards"),
    "arcs": ("query",),
    "mask": ("drawn",),
    "pixels": ("pick",),
    "images": ("word", "head", "spot"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Picture:
    """A picture of numbers. page: returns it as an HTML document that needs no network; canvas: as the view of a live
    widget; print: as the bytes of a "png", "svg" or "pdf" file. canvas and print are None if there is none.

    line: a description in one line, which is its repr and the title of its page. view: what is shown. axes: the labels
    along each axis of its numbers.
    """

    line: str
    view: Any
    numbers: np.ndarray
    page: Callable[[], str]
    canvas: Callable[[], Canvas] | None = None
    print: Callable[[str], bytes] | None = None
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def numpy(self) -> np.ndarray:
        """Return its numbers, as described by the method that made the picture."""
        return self.numbers

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return its numbers, a row for each: its labels, by the name of each axis, and its value."""
        import pandas as pd

        index = pd.MultiIndex.from_product([list(some) for some in self.axes.values()], names=list(self.axes))
        return pd.DataFrame({"value": self.numbers.ravel()}, index=index).reset_index()

    def file(self, kind: str = "html") -> bytes:
        """Return a file's content: "html" or, of heads, "png", "svg" or "pdf". Raises ValueError for another kind."""
        if self.print and kind in PRINT:
            return self.print(kind)
        if kind not in HTML:
            kinds = "HTML, PNG, SVG or PDF (.html, .png, .svg, .pdf)" if self.print else "HTML (.html)"
            raise ValueError(f"expected a file of {kinds}, got {kind!r:.40}")
        return self.page().encode("utf-8", "backslashreplace")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file of the kind that its name ends in; without an ending, HTML. Raises ValueError for a kind that
        this picture does not have, OSError if it cannot be written."""
        if not isinstance(path, str | os.PathLike) or not Path(path).name:
            raise ValueError(f"expected a file name, got {path!r:.80}")
        path = Path(path)
        write(path, self.file(path.suffix.lower().removeprefix(".") or "html"))
        return path

    def widget(self) -> Any:
        """Return a live widget (anywidget), with a trait for each thing that can be picked in it, None until something
        is. Raises ValueError for a table, ImportError, with how to install it, without anywidget."""
        if self.canvas is None:
            raise ValueError(f"expected a picture of heads, a mask or pixels, got {self!r}")
        try:
            import anywidget
            import traitlets
        except ImportError:
            raise ImportError("expected anywidget for a live widget: pip install anywidget") from None
        canvas = self.canvas()
        traits = {name: traitlets.Any(None, allow_none=True).tag(sync=True) for name in TRAITS[canvas.view]} | {
            "_esm": source(*VIEWS[canvas.view], "anywidget.js"),
            "css": traitlets.Unicode(source("widget.css") + style(canvas.view)).tag(sync=True),
            "packet": traitlets.Bytes().tag(sync=True),
            "view": traitlets.Unicode(canvas.view).tag(sync=True),
        }
        return type("View", (anywidget.AnyWidget,), traits)(packet=canvas.packet)

    def _repr_html_(self) -> str:
        return frame(self.page(), repr(self), FRAME_HEIGHT)

    def __repr__(self) -> str:
        return self.line


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class HeadPicture(Picture):
    """Heads of one layer. view: the first one; views: each one by its name. of: a description of their run. query: the
    position whose row is framed. across: the keys are another text than the queries. form: head_picture's."""

    view: HeadView
    views: Sequence[tuple[str, HeadView]]
    canvas: Callable[[], Canvas]
    name: str
    of: str
    query: int
    across: bool
    form: str

    def to_dataframe(self) -> "pd.DataFrame":
        """Return a row for each cell: for arcs the head, then positions, tokens, weight, scaled score, and whether it
        is blocked; for a flow layer, key and value."""
        import pandas as pd

        if self.axes:
            return super().to_dataframe()
        tables = []
        for name, view in self.views:
            queries, keys = (some.ravel() for some in np.indices(view.weights.shape))
            cells: dict[str, Any] = {"head": name} if self.numbers.ndim > 2 else {}
            cells |= {"query": view.first + queries, "key": view.first_key + keys}
            cells |= {"query token": np.array(view.queries)[queries], "key token": np.array(view.keys)[keys]}
            numbers = {"weight": view.weights, "score": view.scaled, "blocked": view.any_blocked()}
            tables.append(pd.DataFrame(cells | {name: some.ravel() for name, some in numbers.items()}))
        return pd.concat(tables, ignore_index=True)

    @property
    def weights(self) -> np.ndarray:
        """The weights, float32 [Q,K], 0 to 1; blocked cells exactly 0."""
        return self.view.weights

    @property
    def scaled(self) -> np.ndarray:
        """The scores before masking, float32 [Q,K]."""
        return self.view.scaled

    @property
    def blocked(self) -> dict[str, np.ndarray]:
        """The masks that are on, by name: bool [Q,K], True = it blocks the cell."""
        return self.view.blocked

    def queries(self, some: Sequence[int], how: Literal["mean", "sum"] = "mean") -> "HeadPicture":
        """Combine several queries into one row: the mean or the sum of their weights; one that attends to nothing has
        no part in the mean. Raises ValueError for a query that does not exist, and for anything but the weights of one
        head: for a change, combine the queries of both heads first."""
        if self.axes or self.form == "change" or len(self.views) > 1:
            raise ValueError(f"expected the weights of one head for several queries, got {self.name}")
        some = items("queries as positions", some)
        row = over_queries(self.view, some, how)
        empty = sum(not self.view.weights[query - self.view.first].any() for query in set(some))
        name = f"{self.name}, {how} of {query_count(len(set(some)))}{f', {empty} without attention' if empty else ''}"
        picture = head_picture("heatmap", [name], [replace(row, first=0)], 0, self.of, across=True)
        return replace(picture, views=[(name, row)])  # at its own position in a table

    def difference(self, other: "HeadPicture") -> "HeadPicture":
        """Subtract another head's weights over the same tokens. Raises ValueError for other tokens, and for several
        heads."""
        if not isinstance(other, HeadPicture):
            raise ValueError(f"expected another head, got {type(other).__name__}")
        for one in (self, other):
            if len(one.views) > 1:
                raise ValueError(f"expected one head for a difference, got {one.name}")
        name = f"{self.name} − {other.name}"
        of = self.of if self.of == other.of else f"{self.of} − {other.of}"
        view = changed(self.view, other.view)
        picture = head_picture("change", [name], [view], self.query, of, across=self.across, axes=self.axes)
        return replace(picture, views=[(name, replace(view, first=self.views[0][1].first))])


@dataclass(frozen=True, eq=False)
class ShownHeads:
    """Heads of one layer, and the part of them that a picture has room for.

    names, views: of each head. query: the position whose row is framed. most: tokens of each side that are shown.
    across: the keys are another text.
    """

    names: list[str]
    views: list[HeadView]
    query: int
    most: int
    across: bool = False

    @property
    def name(self) -> str:
        return ", ".join(self.names)

    @property
    def parts(self) -> list[HeadView]:
        """The part of each head that is shown: the query and the tokens around it."""
        return [around(view, (0, len(view.queries)), self.query, self.most) for view in self.views]

    @property
    def part(self) -> HeadView:
        return self.parts[0]

    @property
    def left_out(self) -> str:
        """A sentence on the tokens that the picture has no room for; "" for none."""
        return left_out(self.views[0], self.part, self.query)

    @property
    def where(self) -> dict[str, Any]:
        """The fields of a packet: the query, the positions of the shown queries, whether the keys are another text."""
        span = self.part.first, self.part.first + len(self.part.queries)
        return {"query": self.query, "among": span, "across": self.across}

    @property
    def row(self) -> HeadView:
        """The query's row in the first head, for the keys that are shown."""
        first, count = self.part.first_key, len(self.part.keys)
        return cropped(self.views[0], (self.query, self.query + 1), (first, first + count))


def head_picture(
    form: str,
    names: list[str],
    views: list[HeadView],
    query: int,
    of: str,
    *,
    across: bool = False,
    first_token: int = 0,
    axes: Mapping[str, Sequence[Any]] | None = None,
) -> HeadPicture:
    """Show a head as "heatmap" or "tokens", the change of one ("change"), or several of one layer as "arcs".

    query: the position whose row is framed. first_token: the key that arcs may leave out. axes: what its rows and
    columns are, if these are not queries and keys.
    """
    heads = ShownHeads(names, views, query, MAX_ARC_TOKENS if form == "arcs" else MAX_TOKENS, across)
    weights = views[0].weights
    most = weight_text(np.abs(weights).max(initial=0.0))
    rows = layer_count if axes else query_count
    size = f"{rows(weights.shape[0])} × {key_count(weights.shape[1])}"
    summary = {"arcs": size, "change": f"largest change {most}"}.get(form, f"{size}, largest weight {most}")
    line = f"{heads.name}: {summary}"

    def canvas() -> Canvas:
        if form == "tokens":
            return Canvas("tokens", tokens_packet(heads.part, name=heads.name, **heads.where))
        if form == "arcs":
            return Canvas("arcs", arcs_packet(heads.parts, heads.names, first_token=first_token, **heads.where))
        packet = difference_packet if form == "change" else picture_packet
        return Canvas("heatmap", packet(heads.part, name=heads.name, query=heads.query))

    def html() -> str:
        note = part_words(views[0].weights.shape, heads.part) if form == "change" else heads.left_out
        words = [note, colour_scale_sentence(heads.part) if form == "tokens" else ""]
        return page(line, [canvas(), tag("p", together(filter(None, words)))])

    return HeadPicture(
        line=line,
        view=views[0],
        views=[*zip(names, views, strict=True)],
        numbers=np.stack([view.weights for view in views]) if form == "arcs" else weights,
        page=html,
        canvas=canvas,
        print=partial(printed_file, form, heads.name, of, heads),
        name=heads.name,
        of=of,
        query=query,
        across=across,
        form=form,
        axes=axes or {},
    )


def printed_file(form: str, title: str, of: str, heads: Any, kind: str) -> bytes:
    """Return the picture as the bytes of a file; see printed.file."""
    from unmask import printed  # matplotlib takes a second

    return printed.file(form, title, of, heads, kind)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LeakPicture(Picture):
    """Each head's shares of attention on later tokens and on padding, float32 [L,H]; NaN where there are none.

    names: of the heads, layer by layer.
    """

    future: np.ndarray
    padding: np.ndarray
    names: list[list[str]]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Predicted(Picture):
    """The most likely next tokens, most likely first; their probabilities are its numbers, float64 [N]."""

    candidates: list[Candidate]


def predicted(name: str, candidates: list[Candidate]) -> Predicted:
    """Return the picture of the most likely next tokens. name: of the token that they follow."""
    line = f"{name}: {candidates[0].label} with {chance(candidates[0].probability)}"
    return Predicted(
        line,
        candidates,
        np.array([one.probability for one in candidates]),
        page=lambda: page(line, [Markup(next_token_table(candidates, candidates, changed=False))]),
        axes={"token": [one.label for one in candidates]},
        candidates=candidates,
    )


def table_picture(
    line: str, view: Any, numbers: np.ndarray, body: Sequence[Markup], axes: Mapping[str, Sequence[Any]]
) -> Picture:
    """Show numbers as tables and sentences, in HTML."""
    return Picture(line, view, numbers, page=lambda: page(line, body), axes=axes)
