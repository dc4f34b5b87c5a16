"""Pictures for print, as PNG, SVG and PDF. Needs matplotlib, which takes a second to import."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from i18n import say, spoken, together
from unmask.shown_heads import ShownHeads
from viz.export import words
from viz.export.fonts import language_of
from viz.export.paper import Paper, Sheet, every_picture
from viz.export.picture import change_picture, head_picture, image_picture, lines_picture, lit_picture
from viz.heads import arcs
from viz.heads.colours import STANDARD_COLOURS
from viz.heads.tokens import left_out, light_words
from viz.lit_image import NO_MAPPING, LitImage, sentence
from viz.saved.explorer import AllHeads

SCALE = 2  # of a PNG: 192 pixels to the inch


@dataclass(frozen=True)
class PrintForm:
    """How a picture is drawn, and sentences on how to read it."""

    draw: Callable[[Paper, Any], Sheet]
    caption: Callable[[Any], Iterable[str]]


def _left_out(heads: ShownHeads) -> str:
    return left_out(heads.views[0], heads.part, heads.query)


def _of_head(heads: ShownHeads) -> list[str]:
    return words.of_head(heads.part, STANDARD_COLOURS, STANDARD_COLOURS.top(heads.part))


def _of_tokens(heads: ShownHeads) -> list[str]:
    return [*words.of_query(heads.row), *words.of_lit(), _left_out(heads), light_words(heads.row)]


def _of_arcs(heads: ShownHeads) -> list[str]:
    return [*words.of_lines(arcs.least(heads.part)), _left_out(heads)]


def _draw_every(paper: Paper, of: tuple[AllHeads, int]) -> Sheet:
    return every_picture(paper, of[0].thumbnails, of[0].blocked, of[0].numbers)


def _of_every(of: tuple[AllHeads, int]) -> list[str]:
    return words.of_every(of[1], of[0].thumbnails.shape[2])


FORMS = {
    "heatmap": PrintForm(lambda paper, heads: head_picture(paper, heads.part), _of_head),
    "change": PrintForm(
        lambda paper, heads: change_picture(paper, heads.part), lambda heads: words.of_change(heads.part)
    ),
    "tokens": PrintForm(lambda paper, heads: lit_picture(paper, heads.row, not heads.across), _of_tokens),
    "arcs": PrintForm(lambda paper, heads: lines_picture(paper, heads.parts, heads.names), _of_arcs),
    "image": PrintForm(image_picture, lambda lit: [sentence(lit), "" if lit.mapped else say(NO_MAPPING)]),
    "overview": PrintForm(_draw_every, _of_every),
}


def file(form: str, title: str, of: str, heads: ShownHeads | LitImage | tuple[AllHeads, int], kind: str) -> bytes:
    """A picture as a file of this kind: "png", "svg" or "pdf". title: "" for all heads. of: what it shows (the model,
    how many tokens, which masks), the first sentence of its caption; or "". heads: what is drawn."""
    with spoken(language_of(kind)):
        caption = [of and f"{of}.", *FORMS[form].caption(heads), f"Unmask {words.version()}."]
        paper = Paper(title or say("All heads"), together(filter(None, caption)), kind, SCALE)
        return FORMS[form].draw(paper, heads).file()
