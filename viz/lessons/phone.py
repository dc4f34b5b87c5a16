"""A lesson's step for the phones of a class: HTML and the packets of pictures, made once for all phones."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from i18n import ENGLISH, LANGUAGES, language, say, spoken
from viz.components import words
from viz.html import join, swatch, table, tag, td, th, track
from viz.lessons import screen
from viz.lessons.glossary import formula, prose
from viz.palette import NOW, STANDARD
from viz.saved.standalone import Canvas, document
from viz.why_causal.charts import Curve, colour, nats

if TYPE_CHECKING:
    from lessons.lesson import Lesson, Step
    from lessons.questions import Answer

WIDE, TALL = 600, 260  # width and height of the picture of curves, in SVG units


@dataclass(frozen=True, eq=False)
class Drawn:
    """Pictures of a step's run for a phone. canvases: each with its title. hatched: whether some have blocked cells."""

    html: Markup | str = ""
    canvases: Sequence[tuple[str, Canvas]] = ()
    hatched: bool = False


@dataclass(frozen=True, eq=False)
class PhoneStep:
    """A step of a lesson for phones. number: from 1. name: the key of stored answers to it. answer: None without a
    question. counts: how often each choice was given, None until the answer is shown."""

    lesson: "Lesson"
    number: int
    name: str
    answer: "Answer | None"
    counts: Mapping[int, int] | None
    drawn: Drawn = field(default_factory=Drawn)

    @property
    def step(self) -> "Step":
        return self.lesson.steps[self.number - 1]

    def body(self) -> bytes:
        """Return gzipped JSON: name, html, its lang and, once the answer is shown, said: the reply to each choice, the
        last one to no choice."""
        step = self.step
        parts = [_above(self.lesson, self.number), prose(step.prose, "prose")]
        parts += [formula(step.formula)] if step.formula else []
        fields: dict[str, Any] = {"name": self.name}
        if self.answer and step.ask:
            question = screen.question(step.ask)
            if self.counts is None:
                parts.append(_question(question, self.answer))
            else:
                given = [*range(len(self.answer.choices)), None]
                fields["said"] = [screen.verdict_on(self.answer.offered(), one, question) for one in given]
                parts += [tag("div", id="said"), bars(self.answer, self.counts, right=True)]  # not shown
        if step.notice and (self.answer is None or self.counts is not None):
            parts.append(prose("**" + say("What to notice.") + f"** {step.notice}", "notice"))
        parts.append(Markup(self.drawn.html))
        for title, one in self.drawn.canvases:
            packet = base64.b64encode(one.packet).decode()
            view = tag("div", class_=f"view {one.view}", data_view=one.view, data_packet=packet)
            parts.append(tag("figure", tag("figcaption", title) + view))
        if self.drawn.hatched:
            parts.append(tag("p", say("Hatched cells are blocked."), class_="note"))
        return _sent(fields | {"html": join(parts)})


def failed_body(lesson: "Lesson", number: int, name: str) -> bytes:
    """Return the message for a step that cannot be drawn, as gzipped JSON. number: from 1."""
    parts = (_above(lesson, number), tag("p", say("This step is on the teacher's screen.")))
    return _sent({"name": name, "html": join(parts)})  # not shown


def end_body(lesson: "Lesson", name: str, right: Mapping[str, Sequence[int]]) -> bytes:
    """Return the lesson's summary as gzipped JSON, under which a phone counts its own answers. right: the right choices
    by the names of the steps whose answers were shown, so that a phone that missed one counts like the others."""
    questions = sum(step.ask is not None for step in lesson.steps)
    parts = (tag("p", lesson.title, class_="note"), tag("h1", say("Summary")))
    html = join((*parts, prose(lesson.summary or lesson.aim, "summary"), tag("p", id="score")))  # not shown
    return _sent({"name": name, "html": html, "scores": screen.scores(questions), "right": right})


def curve_body(lines: Sequence[Curve], steps: int) -> bytes:
    """Return the losses of a running training and of earlier ones, in nats per character, as gzipped JSON. steps: the
    last step."""
    top = max((float(max(line.y)) for line in lines if len(line.y)), default=1.0)
    drawn, legend = Markup(), Markup()
    for line in lines:
        points = " ".join(
            f"{WIDE * x / steps:.0f},{TALL * (1 - y / top):.0f}" for x, y in zip(line.x, line.y, strict=True)
        )
        look = {"fill": "none", "stroke": colour(line.trained), "stroke_width": 3, "opacity": 0.45 if line.faint else 1}
        drawn += tag("polyline", points=points, **look)
        loss = say("{loss} nats/character", loss=nats(line.y[-1])) if len(line.y) else "–"
        legend += tag("p", join((swatch(colour(line.trained)), say("{name}: {value}", name=line.name, value=loss))))
    axis = say("Loss from 0 to {top} nats/character, over steps 0 to {steps}.", top=f"{top:.1f}", steps=steps)
    sizes = {"viewBox": f"-4 -4 {WIDE + 8} {TALL + 8}", "role": "img", "aria_label": axis, "class_": "curve"}
    parts = (tag("h1", say("The training on the teacher's screen")), tag("svg", drawn, **sizes), legend)
    return _sent({"name": "", "html": join((*parts, tag("p", axis, class_="note")))})  # not shown


def losses_table(
    pieces: Sequence[str], one: np.ndarray, other: np.ndarray | None, names: Sequence[str], title: str
) -> Markup:
    """Return a table of the losses of tokens or texts in nats/token, with bars; NaN where there is none. other: losses
    to compare with; left out if their number differs. names: of both; one name if there is nothing to compare with."""
    series = [(names[0], one, NOW if len(names) > 1 else STANDARD)]
    if other is not None and len(other) == len(one):
        series.append((names[1], other, STANDARD))
    top = max(float(np.nanmax(values, initial=0.0)) for _, values, _ in series) or 1.0
    heads = names if len(series) == len(names) else [""]
    rows = [[th(title), *(cell for name in heads for cell in (th(name, "number"), th()))]]
    for index, piece in enumerate(pieces):
        cells = [td(piece, "wraps")]
        for _, values, ink in series:
            value = float(values[index])
            number = "" if np.isnan(value) else f"{value:.2f}"
            cells += [td(number, "number"), track(np.nan_to_num(value) / top, ink)]
        rows.append(cells)
    return table(rows)


def bars(answer: "Answer", counts: Mapping[int, int], *, right: bool) -> Markup:
    """Return bars of how often each choice was given. right: whether to mark the right ones."""
    total = sum(counts.values())
    items = []
    for number, choice in enumerate(answer.choices):
        count = counts.get(number, 0)
        mark = " ✓" if right and number in answer.right else ""
        label = tag("span", screen.plain(choice) + mark) + tag("b", count)
        bar = tag("div", class_="bar", style=f"width:{100 * count / max(total, 1):.0f}%")  # not shown
        items.append(tag("li", label + bar, data_choice=number, class_="right" if mark else "other"))
    return tag("ol", join(items), class_="bars", aria_label=say("Answers of the class"))


@cache
def phone_page(language: str) -> bytes:
    """Return the document that a phone opens, gzipped. language: of its own texts."""
    with spoken(language):
        texts = words("phone")
        code = f"const words = {json.dumps(texts)};\n".replace("<", "\\u003c")
        status = tag("p", texts["waiting"], id="status", role="status")
        body = tag("main", tag("div", id="step", tabindex=-1) + status)  # not shown
        styles = ("lesson.css", "lesson_pictures.css", "phone.css")
        page = document(say("Lesson"), body, ("heatmap", "overview"), script=("phone.js",), styles=styles, code=code,
                        sources="connect-src 'self'")  # fmt: skip
        return gzip.compress(page.encode(), mtime=0)


def language_of(accepted: str) -> str:
    """Return the first language of an Accept-Language header that the app has; English by default."""
    named = [one.strip()[:2].lower() for one in accepted.split(",")]
    return next((one for one in named if one in LANGUAGES), ENGLISH)


def _above(lesson: "Lesson", number: int) -> Markup:
    of = say("{step} of {steps}", step=number, steps=len(lesson.steps) + 1)
    title = tag("h1", lesson.steps[number - 1].title)
    return tag("p", f"{lesson.title} · {of}", class_="note") + title  # not shown


def _question(question: str, answer: "Answer") -> Markup:
    buttons = [
        tag("button", screen.plain(choice), type="button", data_choice=number, aria_pressed="false")
        for number, choice in enumerate(answer.choices)
    ]
    return tag("div", tag("p", tag("b", question)) + join(buttons), class_="question")


def _sent(fields: dict[str, Any]) -> bytes:
    return gzip.compress(json.dumps(fields | {"lang": language()}).encode(), 6, mtime=0)


STRIP = """<style>
  :root { --strip: max(3.9rem, 5.4vw); }
  $sidebar_content { padding-bottom: 4rem; }
  @media (min-width: 641px) { /* the page's end can be scrolled above it */
    $main $block_container { padding-bottom: var(--strip); } }
  .st-key-lesson_room { position: fixed; left: 0; right: 0; bottom: 0; z-index: 999995; padding: .4rem 1.2rem;
    background: light-dark(#F5F4F1, #1B1F27); border-top: 1px solid rgba(128,128,128,.4); }
  .st-key-lesson_room div:has(> p) { display: flex; flex-wrap: wrap; gap: .1rem 1.6rem; align-items: center; }
  .st-key-lesson_room p { margin: 0; white-space: nowrap; font-variant-numeric: tabular-nums; }
  .st-key-lesson_room :is(p, ol.bars li) { font-size: max(14px, 1.5vw); }
  .st-key-lesson_room ol.bars { display: flex; gap: .2rem 1.4rem; flex: 1; margin: 0; }
  .st-key-lesson_room ol.bars li { flex: 1; max-width: 18em; margin: 0; line-height: 1.15; }
  .st-key-lesson_room ol.bars span { /* the whole answer stands on the page */
    display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
  .qr { width: min(100%, max(12rem, 100dvh - 23rem)); display: block; margin: auto; }
  [role=dialog] code { font-size: max(13px, 1.05vw); }
  @media (max-width: 640px) {
    .st-key-lesson_room { padding: .3rem .6rem; }
    body:has(.st-key-lesson_nav) .st-key-lesson_room { bottom: 3.6rem; }
    .st-key-lesson_room ol.bars { flex-direction: column; } }
</style>"""
