"""What a picture and a file say of themselves."""

from collections.abc import Sequence

from viz.heads.colours import Colours
from viz.view import HeadView

HATCHED = "Hatched cells are blocked."


def masks_said(on: Sequence[str], lifted: Sequence[str], *, only_layer: bool) -> str:
    """Which masks hold and which are lifted."""
    said = ", ".join(on) or "none"
    if lifted:
        said += f"; lifted: {', '.join(lifted)}" + (", in this layer only" if only_layer else "")
    return said


def caption(what: str, how: Sequence[str], *, model: str, masks: str, sha256: str, version: str) -> str:
    """Below a picture, enough to make it again: what is shown of which model under which masks, how to read it, on
    which text."""
    return " ".join([f"{what} of {model}.", f"Masks: {masks}.", *filter(None, how), f"Text: SHA-256 {sha256[:12]}.",
                     f"Unmask {version}."])  # fmt: skip


def of_head(view: HeadView, colours: Colours, top: float) -> list[str]:
    """How to read a heatmap, or several. top: the weight of the last colour."""
    rows, columns = view.weights.shape
    queries, keys = f"{view.first}–{view.first + rows - 1}", f"{view.first_key}–{view.first_key + columns - 1}"
    return [
        f"Queries {queries} and keys {keys} are shown.",
        "A row is the token that looks, a column the token looked at.",
        colours.words(top),
        HATCHED,
    ]


def of_every(queries: int, side: int) -> list[str]:
    """How to read all heads of a run of so many queries, each so many pixels high."""
    patch = "" if side >= queries else f"Of {queries} queries, a pixel is the largest weight of a patch."
    return ["Rows are layers, columns are heads.", patch, "Brightness is the square root of the weight.", HATCHED]


def of_lines(least: float) -> list[str]:
    """How to read lines between tokens."""
    return [f"A line joins a token that looks with one looked at, from a weight of {least} on; the thicker, the more."]


def of_query(row: HeadView) -> list[str]:
    """Which row of a head a picture of one query shows."""
    return [f"The token that looks is {row.first}: {row.queries[0]}."]


def of_lit() -> list[str]:
    """How to read a text that is lit."""
    return ["The redder a token, the more it is looked at; a weight of 0.005 or more stands below it.", HATCHED]
