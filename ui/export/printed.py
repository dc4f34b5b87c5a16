"""A picture for print: its title and caption, and its files, which are made on request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from i18n import N_, language, say, spoken
from serving.job import Job
from ui import results
from ui.results import cached_figure
from ui.widgets import deferred, download
from viz.export.fonts import drawable, language_of, writes
from viz.export.paper import DOTS, KINDS, Paper, Sheet, file_of

SCALES = {"1×": 1, "2×": 2, "4×": 4}


@dataclass(frozen=True, eq=False)
class PrintedPicture:
    """A picture, drawn by draw(paper, *of). title, caption: return the picture's, in the language that is set when they
    are called. labels: of its tokens."""

    draw: Callable[..., Sheet]
    of: tuple[Any, ...]
    title: Callable[[], str]
    caption: Callable[[], str]
    labels: list[str]

    def file(self, kind: str, scale: int = 1) -> bytes:
        """Return the picture as a file of this kind, in a language that its fonts support; made as a job, in turn with
        all others and within their limits."""
        with spoken(language_of(kind)):
            paper = Paper(self.title(), self.caption(), kind, scale)
            return results.scheduler().ask(Job(file_of, (self.draw, paper, *self.of)), results.session())

    def preview(self) -> tuple[str, int]:
        """Return the picture as SVG and its width in pixels, cached."""
        return cached_figure(_preview, self.draw, Paper(self.title(), self.caption()), *self.of)


def offer(picture: PrintedPicture, name: str) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _button(picture, f"{name}.svg", "SVG", say("Text is kept as text."))
        _button(picture, f"{name}.pdf", "PDF", say("Text is kept as text; the size depends on the tokens."))
        for times, scale in SCALES.items():
            note = say("Up to {dots} pixels per inch.", dots=DOTS * scale)
            _button(picture, f"{name}@{scale}x.png", f"PNG {times}", note, scale)


def note_missing_fonts(picture: PrintedPicture) -> None:
    """Note which characters this server's fonts do not have, and whether they lack the user's language."""
    missing = "".join(dict.fromkeys(one for label in picture.labels for one in label if drawable(one) != one))
    if missing:
        template = N_(
            "No font on this server has {characters}: PNG and PDF show code points instead; an SVG uses the viewer's "
            "fonts."
        )
        st.caption(say(template, characters=missing[:20]))
    if not writes(language()):
        template = N_(
            "No font on this server supports your language: PNG and PDF are labelled in English; an SVG uses the "
            "viewer's fonts."
        )
        st.caption(say(template))


def _button(picture: PrintedPicture, name: str, label: str, help_text: str, scale: int = 1) -> None:
    kind = name.rpartition(".")[2]
    made = deferred(lambda: picture.file(kind, scale))
    download(label, made, name, KINDS[kind], key=f"take_{kind}_{scale}", help=help_text)


def _preview(draw: Callable[..., Sheet], paper: Paper, *of: Any) -> tuple[str, int]:
    sheet = draw(paper, *of)
    return sheet.file().decode(), round(sheet.wide * DOTS)
