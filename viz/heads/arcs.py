"""Tokens on both sides and lines between them, of one head or several, as bytes for components/arcs.js."""

from collections.abc import Sequence

from viz.components.words import words
from viz.heads.cells import around, cells_packet
from viz.palette import NOW
from viz.view import HeadView

MOST_TOKENS = 64  # of each text: more lines would be a grey area
COLOURS = (NOW, "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, after the chosen head's
MOST_HEADS = len(COLOURS)


def shown(view: HeadView, part: tuple[int, int], query: int) -> HeadView:
    """What of a whole view is shown: the query and what stands around it."""
    return around(view, part, query, MOST_TOKENS)


def arcs_packet(
    views: Sequence[HeadView],
    names: Sequence[str],
    *,
    query: int,
    among: tuple[int, int],
    first_token: int,
    across: bool = False,
) -> bytes:
    """Heads over the same part of a text, the chosen one first, by their names. query: a position in the whole text;
    among: those that keys move it to, from one up to, without, another. first_token: of the keys, the one that can be
    hidden. across: the keys are another text.
    """
    header = {
        "name": names[0],
        "names": list(names),
        "colours": list(COLOURS[: len(views)]),
        "query": query,
        "among": among,
        "firstToken": first_token,
        "across": across,
        "words": words("arcs"),
    }
    return cells_packet(views, header)
