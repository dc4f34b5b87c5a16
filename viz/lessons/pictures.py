"""The pictures of a lesson's step that are HTML: vectors as strips of colour, a row of four tokens with its numbers,
the norms of values, and training curves, with text as large as the text around them. Also a token's attention to an
image and, before it is shown, the image and the words alone.

Sizes: P image tokens, which come first in a row.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from i18n import N_, listed, say
from model.heads.view import HeadView
from model.images.patches import Box
from viz.hatch import picture_uri
from viz.html import fixed, join, rounded, shortened, svg_image, table, tag, td, th, track
from viz.images import ImageHeatmaps, composed, image_attention_sentence
from viz.lessons.screen import decimal, tokens
from viz.numbers import Candidate, next_token_table, percent
from viz.palette import MARK, NOW, STANDARD, diverging, rgb

if TYPE_CHECKING:
    from lessons.picture_data import PictureData
    from model.heads.vectors import FourTokens, FourTokensSteps, HeadVectors, RunScores

DRAWN = frozenset({"embedding", "qkv", "output", "logits", "norms", "numbers", "training"})  # values of a step's `show`
MAX_KEYS = 8  # largest number of keys whose values are drawn
FOUR = ("the", "cat", "sat", "down")
COLOURS = {one[0]: rgb(str(one[1])) for one in diverging(dark=False)}
_Curve = tuple[str, list[float], str]  # a line of a panel: its name, a number for each run, its colour


def picture(show: str, data: "PictureData", labels: Sequence[str], query: int, keys: Sequence[str] = ()) -> Markup:
    """Draw a step's picture of one batch row of its run. show: the step's setting, in DRAWN. labels: the row's tokens.
    keys: those of the source in cross-attention, otherwise empty."""
    if isinstance(data, np.ndarray):
        about = say("Each token's vector of {count} numbers, as it enters the first layer.", count=data.shape[1])
        return _figure(_strips(labels, data, query), _about_colours(about))
    if isinstance(data, list):
        candidates = [Candidate(label, chance) for label, chance in data]
        return _figure(Markup(next_token_table(candidates, candidates, changed=False)), "")
    return {"qkv": _qkv, "output": _output, "norms": _norms}[show](data, labels, query, keys)


def _figure(content: Markup, about: str) -> Markup:
    note = tag("figcaption", about) if about else ""
    return tag("figure", join([content, note]), class_="lesson_picture")


def _about_colours(words: str) -> str:
    return words + " " + say("Red is above 0, blue below.")


def _strips(labels: Sequence[str], vectors: np.ndarray, query: int | None) -> Markup:
    """Return a table with a row for each vector: its label, and its numbers as colours."""
    reach = float(np.abs(vectors).max()) or 1.0
    rows = [
        [th(shortened(label, 12), "query" if position == query else "token"), td(_strip(vector, reach), "strip")]
        for position, (label, vector) in enumerate(zip(labels, vectors, strict=True))
    ]
    return table(rows, "strips")


def _strip(values: np.ndarray, reach: float) -> Markup:
    """Return numbers from -reach to reach as an image one pixel high, transparent at 0."""
    pixels = np.zeros((1, len(values), 4), np.uint8)
    pixels[0, :, :3] = np.where(values[:, None] > 0, COLOURS[1.0], COLOURS[0.0])
    pixels[0, :, 3] = np.round(255 * np.clip(np.abs(values) / reach, 0, 1) ** 0.7)
    return tag("img", src=picture_uri(pixels), alt="")


def _qkv(head: "HeadVectors", labels: Sequence[str], query: int, keys: Sequence[str]) -> Markup:
    parts = [tag("div", tag("b", say("query q")) + _strips(labels, head.q, query))]
    for name, vectors in ((say("key k"), head.k), (say("value v"), head.v)):
        parts.append(tag("div", tag("b", name) + _strips(keys or labels, vectors, None if keys else query)))
    about = say("Three vectors of {count} numbers for each token.", count=head.q.shape[1])
    return _figure(tag("div", join(parts), class_="three"), _about_colours(about))


def _output(head: "HeadVectors", labels: Sequence[str], query: int, keys: Sequence[str]) -> Markup:
    """Draw the query's keys with the largest weights, each with its value, and below them the sum."""
    weights, reach = head.weights[query], float(np.abs(head.v).max()) or 1.0
    shown = np.sort(np.argsort(-weights, kind="stable")[:MAX_KEYS])
    rows = [[th(say("key")), th(say("weight"), "number"), th(), th(say("value v"))]]
    for key in shown[weights[shown] > 0]:
        weight = float(weights[key])
        cells = [td(percent(weight), "number"), track(weight, NOW), td(_strip(head.v[key], reach), "strip")]
        rows.append([th(shortened((keys or labels)[key], 12), "token"), *cells])
    rows.append([th(say("output"), colspan=3), td(_strip(head.output[query], reach), "strip")])
    words = N_("The output of “{token}”: the sum of weight × value over all keys, of which the heaviest are listed.")
    return _figure(table(rows, "strips"), _about_colours(say(words, token=labels[query])))


def _norms(head: "HeadVectors", labels: Sequence[str], query: int, keys: Sequence[str]) -> Markup:
    longest = float(head.norms.max()) or 1.0
    rows = [[th(say("key")), th(say("weight"), "number"), th(), th(say("length of v"), "number"), th()]]
    row = zip(keys or labels, head.weights[query], head.blocked[query], head.norms, strict=True)
    for key, weight, blocked, norm in row:
        given = say("blocked") if blocked else percent(float(weight))
        cells = [td(given, "number"), track(float(weight), NOW)]
        cells += [td(fixed(norm, 1), "number"), track(float(norm) / longest, STANDARD)]
        rows.append([th(shortened(key, 12), "token"), *cells])
    return _figure(
        table(rows, "strips"), say("The row of “{token}”, and the length of every key's value.", token=labels[query])
    )


def numbers(given: "FourTokens", steps: "FourTokensSteps | None") -> Markup:
    """Return a table of the row of four tokens. steps: the computed numbers; None: only the given ones are shown."""
    title = tag("p", join([tag("b", "q"), f" = {_pair(given.query)}, {given.precision}"]))
    columns = ["k", "v", *([] if steps is None else ["q·k", "q·k / √2", "+ M", say("score"), say("weight")])]
    rows = [[th(say("key")), *(th(column, "number") for column in columns)]]
    for key, token in enumerate(FOUR):
        blocked = key in given.blocked
        cells = [td(_pair(given.keys[key]), "number"), td(_pair(given.values[key]), "number")]
        if steps is not None:
            some = (steps.raw, steps.scaled, steps.added, steps.masked)
            cells += [td(rounded(one[key]), "number") for one in some] + [td(decimal(steps.weights[key]), "number")]
        name = token if not blocked else say("{token} (blocked)", token=token)
        rows.append([th(name, "blocked" if blocked else "token"), *cells])
    if steps is not None:
        if given.sink is not None:
            rows.append([th(say("the head's sink"), colspan=6), td(rounded(given.sink), "number"), td()])
        rows.append([th(say("sum"), colspan=7), td(decimal(steps.total), "number")])
        rows.append([th("Σ w·v", colspan=6), td(_pair(steps.output), "number", colspan=2)])
    return _figure(title + table(rows, "four"), "")


def _pair(numbers: Iterable[float]) -> str:
    return "(" + ", ".join(rounded(one) for one in numbers) + ")"


PANEL = (250, 200, 36, 30)  # of a curve: width, height, and the space for numbers on the left and below


def training(steps: Sequence[int], scores: "Sequence[RunScores]", chosen: int, ink: str = "") -> Markup:
    """Draw the loss, and the best previous-token and induction scores, over training; a line marks the chosen run.

    ink: the text colour for a page that shows SVG only as an image; "" for one that allows SVG elements.
    """
    losses = say("loss"), [one.loss for one in scores], NOW
    previous = say("previous token"), [one.previous for one in scores], STANDARD
    induction = say("induction"), [one.induction for one in scores], MARK
    panels = [_panel(steps, curves, chosen, ink) for curves in ([losses], [previous, induction])]
    here = {"step": steps[chosen], "loss": scores[chosen].loss}
    here |= {"previous": scores[chosen].previous, "induction": scores[chosen].induction}
    words = N_(
        "Step {step}: loss {loss:.2f} nats on the repetition, previous-token score {previous:.2f}, induction score "
        "{induction:.2f}."
    )
    return _figure(tag("div", join(panels), class_="panels"), say(words, **here))


def _panel(steps: Sequence[int], curves: Sequence[_Curve], chosen: int, ink: str) -> Markup:
    width, height, left, below = PANEL
    top = max(1.0, *(max(values) for _, values, _ in curves))

    def at(step: float, value: float) -> str:
        x = left + (width - left - 8) * step / steps[-1]
        return f"{x:.1f},{24 + (height - below - 24) * (1 - value / top):.1f}"

    floor, here = height - below, at(steps[chosen], 0).split(",")[0]
    thirds = 0, steps[-1] // 3, 2 * steps[-1] // 3
    parts = [
        _line(left, floor, width - 8, floor), _line(left, 24, left, floor), _line(here, 24, here, floor, dash=True),
        *(_words(f"{value:g}", left - 6, at(0, value).split(",")[1], "end") for value in (0, int(top))),
        *(_words(f"{step}", at(step, 0).split(",")[0], floor + 18, "middle") for step in thirds),
        _words(say("step"), width - 8, floor + 18, "end"),
    ]  # fmt: skip
    x = left
    for name, values, colour in curves:
        points = " ".join(at(step, value) for step, value in zip(steps, values, strict=True))
        parts.append(tag("polyline", points=points, fill="none", stroke=colour, stroke_width=2.5))
        parts += [tag("rect", x=x, y=6, width=12, height=4, fill=colour), _words(name, x + 16, 13, "start")]
        x += 118
    words = N_("{name}: from {first:.2f} to {last:.2f}")
    alt = listed((say(words, name=name, first=values[0], last=values[-1]) for name, values, _ in curves), N_("; "))
    look = {"color": ink or "currentColor", "font_family": "sans-serif"}
    if ink:
        return svg_image(parts, width, height, alt, **look)
    return tag("svg", join(parts), role="img", aria_label=alt, viewBox=f"0 0 {width} {height}", **look)


def _line(x1: float | str, y1: float, x2: float | str, y2: float, *, dash: bool = False) -> Markup:
    look = {"stroke_dasharray": "4 3"} if dash else {}
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="currentColor", **look)


def _words(words: str, x: float | str, y: float | str, anchor: str) -> Markup:
    return tag("text", words, x=x, y=y, fill="currentColor", font_size=14, text_anchor=anchor)


def step_image_attention(
    view: HeadView, name: str, image: tuple[np.ndarray, tuple[Box, ...]], query: int
) -> ImageHeatmaps:
    """Return a head's attention to an image: uint8 [height, width, 3], and its tokens' boxes. query: a position."""
    pixels, boxes = image
    rows = sorted({query, *range(len(boxes), len(view.queries))})
    cells = np.s_[rows, : len(boxes)]
    names, labels = tuple(view.keys[: len(boxes)]), tuple(view.queries[row] for row in rows)
    weights, blocked = view.weights[cells][None], {name: mask[cells] for name, mask in view.blocked.items()}
    return ImageHeatmaps((name,), pixels, boxes, names, weights, blocked, labels, rows.index(query))


def lit_picture(view: HeadView, name: str, image: tuple[np.ndarray, tuple[Box, ...]], query: int) -> tuple[str, str]:
    """Return a head's attention to an image as a sentence and the URI of a PNG. Arguments: see step_image_attention."""
    heatmaps = step_image_attention(view, name, image, query)
    return image_attention_sentence(heatmaps), picture_uri(composed(heatmaps))


def image_and_words(image: tuple[np.ndarray, tuple[Box, ...]], pieces: Sequence[str], query: int | None) -> Markup:
    """Return the image and the words of a row as HTML; image tokens are listed too if the query is one."""
    pixels, boxes = image
    first = len(boxes) if query is None or query >= len(boxes) else 0
    alt = say("The image of {count} image tokens, which come before the words.", count=len(boxes))
    return join([scene_image(picture_uri(pixels), alt), tokens(pieces, query, first)])


def scene_image(uri: str, alt: str) -> Markup:
    return tag("img", src=uri, alt=alt, class_="scene")
