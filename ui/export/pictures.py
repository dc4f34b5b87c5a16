"""What the reader sees as a picture for print, and the files of it, made when they are asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from ui import query
from ui.drawn import drawn
from ui.export.subject import Subject
from ui.guard import guarded
from ui.heads.arcs import choose_heads
from ui.heads.views import colours
from viz.export import words
from viz.export.bars import bars_picture
from viz.export.every import every_picture
from viz.export.fonts import drawable
from viz.export.lines import LEAST, lines_picture
from viz.export.lit import lit_picture
from viz.export.paper import DOTS, KINDS, Paper, Sheet
from viz.export.picture import MOST_SIDE, head_picture
from viz.heads import arcs, tokens
from viz.heads.bars import Row
from viz.heads.tokens import left_out
from viz.view import HeadView, cropped

SCALES = {"1×": 1, "2×": 2, "4×": 4}
Part = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Picture:
    """draw(paper, *of) is it. labels: of its tokens."""

    draw: Callable[..., Sheet]
    of: tuple[Any, ...]
    title: str
    caption: str
    labels: list[str]

    def file(self, kind: str, scale: int = 1) -> bytes:
        """As a file of this kind."""
        return self.draw(Paper(self.title, self.caption, kind, scale), *self.of).file()

    def preview(self) -> tuple[str, int]:
        """As SVG, and how many pixels wide; remembered."""
        return drawn(_preview, self.draw, Paper(self.title, self.caption), *self.of)


def show(subject: Subject, part: Part) -> None:
    """A picture of the reader's choice. part: the positions that are shown large, from one up to, without, another."""
    st.segmented_control("Picture of", list(PICTURES), format_func=lambda kind: PICTURES[kind][0],
                         key="picture", required=True, label_visibility="collapsed")  # fmt: skip
    with guarded("Drawing …"):
        picture = PICTURES[st.session_state.picture][1](subject, part)
        if picture is None:
            st.info(f"A picture has room to name {MOST_SIDE} tokens a side. Choose a part of the text on the left.")
            return
        files = st.container(horizontal=True, vertical_alignment="bottom")
        missing = "".join(dict.fromkeys(one for label in picture.labels for one in label if drawable(one) != one))
        if missing:
            st.caption(
                f"No font of this server has {missing[:20]}: PNG and PDF name such characters by their code points, an "
                "SVG is drawn with the fonts of whoever opens it."
            )
        with st.container(key="paper"):
            svg, wide = picture.preview()
            st.image(svg, width=wide)
    with files:
        for kind, help_text in (("svg", "Text stays text."), ("pdf", "Text stays text; as large as its tokens need.")):
            _button(picture, kind, kind.upper(), help_text)
        for name, scale in SCALES.items():
            _button(picture, "png", f"PNG {name}", f"{DOTS * scale} pixels to the inch.", scale)


def _button(picture: Picture, kind: str, label: str, help_text: str, scale: int = 1) -> None:
    name = "attention.svg" if kind == "svg" else "attention.pdf" if kind == "pdf" else f"attention@{scale}x.png"
    st.download_button(label, lambda: picture.file(kind, scale), name, KINDS[kind], key=f"take_{kind}_{scale}",
                       on_click="ignore", icon=":material/download:", help=help_text)  # fmt: skip


def _head(subject: Subject, part: Part) -> Picture | None:
    whole = subject.views()
    square = whole[0].weights.shape[0] == whole[0].weights.shape[1]
    views = [cropped(view, part, part) if square else view for view in whole]
    if max(views[0].weights.shape) > MOST_SIDE:
        return None
    meant = colours()
    how = words.of_head(views[0], meant, meant.top(*views))
    standard = views[1] if len(views) > 1 else None
    return _picture(subject, head_picture, (views[0], standard, meant), how, views[0])


def _every(subject: Subject, part: Part) -> Picture:
    found, run = subject.now.survey(), subject.now.run
    layers, heads, side = found.thumbnails.shape[:3]
    what = f"Attention of all {layers} × {heads} heads"
    how = words.of_every(len(run.queries.pieces[subject.now.row]), side)
    numbers = subject.now.model.describe().layer_numbers.get(run.attention, ())
    of = found.thumbnails, found.blocked, numbers
    return Picture(every_picture, of, f"{subject.model} · all heads", subject.caption(what, how), [])


def _arcs(subject: Subject, part: Part) -> Picture:
    others = choose_heads(subject.now, f"L{subject.number}", subject.head)
    at = query.choose(subject.now)
    names = [subject.name, *(f"L{subject.number} H{head}" for head in others)]
    whole = [subject.now.head(subject.layer, head) for head in (subject.head, *others)]
    views = [arcs.shown(view, part, at) for view in whole]
    how = [*words.of_lines(LEAST), left_out(whole[0], views[0], at)]
    return _picture(subject, lines_picture, (views, names), how, views[0], others)


def _tokens(subject: Subject, part: Part) -> Picture:
    (row, *_), how = _rows(subject, part)
    own = subject.now.run.queries is subject.now.run.keys
    return _picture(subject, lit_picture, (row, own), [*how, *words.of_lit()], row)


def _bars(subject: Subject, part: Part) -> Picture:
    rows, how = _rows(subject, part)
    row = Row(rows[0], rows[1] if len(rows) > 1 else None)
    return _picture(subject, bars_picture, (row,), how, rows[0])


def _rows(subject: Subject, part: Part) -> tuple[list[HeadView], list[str]]:
    """The row of the query that the reader chooses, now and as standard; and in words which it is."""
    at = query.choose(subject.now)
    whole = subject.views()
    near = tokens.shown(whole[0], part, at)
    keys = near.first_key, near.first_key + len(near.keys)
    rows = [cropped(view, (at, at + 1), keys) for view in whole]
    beyond = left_out(whole[0], rows[0], at) if len(near.keys) < len(whole[0].keys) else ""
    return rows, [*words.of_query(rows[0]), beyond]


def _picture(
    subject: Subject, draw: Callable[..., Sheet], of: tuple, how: list[str], view: HeadView, others: Sequence[int] = ()
) -> Picture:
    heads = f"heads {', '.join(map(str, (subject.head, *others)))}" if others else f"head {subject.head}"
    what = f"Attention of layer {subject.number}, {heads}"
    title = f"{subject.model} · {subject.name}"
    return Picture(draw, of, title, subject.caption(what, how), [*view.queries, *view.keys])


def _preview(draw: Callable[..., Sheet], paper: Paper, *of: Any) -> tuple[str, int]:
    sheet = draw(paper, *of)
    return sheet.file().decode(), round(sheet.wide * DOTS)


PICTURES: dict[str, tuple[str, Callable[[Subject, Part], Picture | None]]] = {
    "head": ("Head", _head),
    "every": ("All heads", _every),
    "arcs": ("Arcs", _arcs),
    "tokens": ("Tokens", _tokens),
    "bars": ("Bars", _bars),
}
