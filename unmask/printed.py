"""Pictures for print, as PNG, SVG and PDF. Needs matplotlib, which takes a second to import."""

from collections.abc import Callable, Iterable
from typing import Any

from i18n import say, spoken, together
from viz.export import words
from viz.export.chart import chart_picture
from viz.export.fonts import language_of
from viz.export.paper import Paper, Sheet, all_heads_picture
from viz.export.picture import change_picture, coloured_text_picture, head_picture, image_picture, lines_picture
from viz.heads.colours import STANDARD_COLOURS
from viz.heads.tokens import colour_scale_sentence, least_line
from viz.images import image_attention_sentence, mapping_note

SCALE = 2  # of a PNG: 192 pixels to the inch
Form = tuple[Callable[[Paper, Any], Sheet], Callable[[Any], Iterable[str]]]  # draws it; sentences on how to read it
FORMS: dict[str, Form] = {
    "heatmap": (
        lambda paper, heads: head_picture(paper, heads.part),
        lambda heads: words.of_heads([heads.part], STANDARD_COLOURS, STANDARD_COLOURS.top(heads.part)),
    ),
    "change": (lambda paper, heads: change_picture(paper, heads.part), lambda heads: words.change_caption(heads.part)),
    "tokens": (
        lambda paper, heads: coloured_text_picture(paper, heads.row, not heads.across),
        lambda heads: [
            *words.of_query(heads.row),
            *words.coloured_text_caption(heads.row),
            heads.left_out,
            colour_scale_sentence(heads.row),
        ],
    ),
    "arcs": (
        lambda paper, heads: lines_picture(paper, heads.parts, heads.names),
        lambda heads: [*words.lines_caption(least_line(heads.part)), heads.left_out],
    ),
    "chart": (chart_picture, lambda _: []),
    "image": (image_picture, lambda view: [image_attention_sentence(view), mapping_note(view)]),
    "overview": (
        lambda paper, of: all_heads_picture(paper, of[0].thumbnails, of[0].blocked, of[0].numbers),
        lambda of: words.all_heads_caption(of[1], of[0].blocked),
    ),
}


def file(form: str, title: str, of: str, heads: Any, kind: str) -> bytes:
    """Return a picture as a file of this kind: "png", "svg" or "pdf". title: "" for all heads. of: what it shows (the
    model, how many tokens, which masks), the first sentence of its caption; or "". heads: the data: ShownHeads, a
    ImageHeatmaps or, for "overview", AllHeads and the numbers of queries and of keys."""
    draw, read = FORMS[form]
    with spoken(language_of(kind)):
        caption = [of and f"{of}.", *read(heads), f"Unmask {words.version()}."]
        paper = Paper(title or say("All heads"), together(filter(None, caption)), kind, SCALE)
        return draw(paper, heads).file()
