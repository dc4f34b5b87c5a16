"""Pictures for print, as PNG, SVG and PDF: what `Printed.file` asks for. Needs matplotlib, which takes a second."""

from collections.abc import Callable, Sequence

from i18n import spoken, together
from model.heads.view import HeadView, cropped
from viz.export import words
from viz.export.every import every_picture
from viz.export.fonts import language_of
from viz.export.paper import KINDS, Paper, Sheet
from viz.export.picture import change_picture, head_picture, lines_picture
from viz.export.query import lit_picture
from viz.export.words import version
from viz.heads import arcs, tokens
from viz.heads.colours import STANDARD_COLOURS
from viz.saved.explorer import AllHeads

SCALE = 2  # of a PNG: 192 pixels to the inch
Draw = Callable[[Paper], Sheet]
How = Callable[[], Sequence[str]]  # sentences: how to read it


def file(title: str, of: str, kind: str, draw: Draw, how: How) -> bytes:
    """A picture as a file of this kind, of KINDS. of: what it is of, the first sentence of its caption, or ""."""
    if kind not in KINDS:
        raise ValueError(f"expected a kind of picture out of {', '.join(KINDS)}, got {kind!r}")
    with spoken(language_of(kind)):
        caption = together([*filter(None, (of and f"{of}.", *how())), f"Unmask {version()}."])
        return draw(Paper(title, caption, kind, SCALE)).file()


def head(view: HeadView) -> tuple[Draw, How]:
    """A heatmap."""
    return (
        lambda paper: head_picture(paper, view),
        lambda: words.of_head(view, STANDARD_COLOURS, STANDARD_COLOURS.top(view)),
    )


def change(view: HeadView) -> tuple[Draw, How]:
    """A heatmap of changes."""
    return lambda paper: change_picture(paper, view), lambda: words.of_change(view)


def text(whole: HeadView, part: HeadView, query: int, *, own: bool) -> tuple[Draw, How]:
    """The keys of a part of the whole head, each lit by how much the query looks at it."""
    row = cropped(whole, (query, query + 1), (part.first_key, part.first_key + len(part.keys)))
    return (
        lambda paper: lit_picture(paper, row, own),
        lambda: [
            *words.of_query(row),
            *words.of_lit(),
            tokens.left_out(whole, part, query),
            tokens.light_words(row),
        ],
    )


def lines(whole: HeadView, parts: Sequence[HeadView], names: Sequence[str], query: int) -> tuple[Draw, How]:
    """Lines between tokens, for each head of the parts."""
    return (
        lambda paper: lines_picture(paper, parts, names),
        lambda: [*words.of_lines(arcs.least(parts[0])), tokens.left_out(whole, parts[0], query)],
    )


def every(heads: AllHeads, queries: int) -> tuple[Draw, How]:
    """All heads of a run of so many queries."""
    return (
        lambda paper: every_picture(paper, heads.thumbnails, heads.blocked, heads.numbers),
        lambda: words.of_every(queries, heads.thumbnails.shape[2]),
    )
