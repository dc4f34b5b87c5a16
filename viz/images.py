"""Images for components/images.js: a picture and its caption, and a table of losses under each mask; an image under a
dark veil that is transparent where a token attends to, also composed to pixels for print.

Sizes: L layers, H heads, S words or tokens of a text, P patches or image tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from PIL import Image

from i18n import N_, say, say_count, together
from model.heads.view import blocked_by_any, head_name
from model.images.patches import MIN_ATTENTION, Box, grid_tokens, with_means
from viz.components import packed, words
from viz.figure_table import FigureTable, grid
from viz.hatch import ink, picture_uri
from viz.html import filled, numbered, paragraph, table, tag, td, th
from viz.numbers import chance, number, percent

if TYPE_CHECKING:
    from model.huggingface.image_prompts import ImageAttention  # imports transformers

MASKS = {
    "causal": N_("causal"), "prefix": N_("prefix"), "block": N_("block"), "window": N_("block within a window"),
}  # fmt: skip
HINTS = {
    "look": N_("Point at a word or at a patch; click a word to keep it."),
    "place": N_(
        "Click to set the centre of the shape. It replaces the shapes that it touches, or the first of three. "
        "Keys: arrows and Enter."
    ),
    "remove": N_("Click a patch to remove it, or to bring it back. Keys: arrows and Enter."),
}

SHOWN = {"raw": N_("Raw"), "relative": N_("Relative")}
RELATIVE = N_(
    "“{word}” (probability {chance}): in {head}, its attention over the prompt's is largest at {patch}: {most}."
)
ITSELF = N_("“{word}” (probability {chance}) is written at the prompt word: its attention is divided by itself.")
Best = tuple[str, float, float, float, float]


def shown_help() -> str:
    words = N_(
        "Relative: what a patch gets from a word, divided by what it gets from the prompt word, where the first word "
        "is written and nothing is described yet; a divisor below {least} counts as {least}. A mean is divided by the "
        "mean. As in Zhang et al. 2025, who divide by the attention under a neutral prompt."
    )
    return say(words, least=percent(MIN_ATTENTION))


def images_packet(
    caption: tuple[str, ...],
    chances: np.ndarray,
    weights: np.ndarray,
    blocked: np.ndarray,
    shares: np.ndarray | None,
    boxes: tuple[Box, ...],
    removed: tuple[int, ...],
    mode: str,
    *,
    neutral: np.ndarray | None = None,
    **plain: object,
) -> bytes:
    """Return a picture's packet. chances [S]; weights [L,H,S,P]; blocked [S,P], 0 or the number of a cell's hatch, from
    1. shares: each head's localization [L,H], or None. neutral: as in with_means.

    boxes: of the patches, in shares of the picture's width and height. mode: a key of HINTS. plain: passed to the
    component unchanged: picture, a URI; smooth, whether to interpolate it; names of patches; head, a row of with_means;
    word, the index of the selected one, S for none; changed, for each word whether the standard run has another.
    """
    pairs = list(np.ndindex(weights.shape[:2]))
    known = [""] * len(pairs) if shares is None else [percent(float(shares[pair])) for pair in pairs]
    every = [(say("mean of all heads"), ""), *zip((head_name(*pair) for pair in pairs), known, strict=True)]
    every += [(say("mean of layer {layer}", layer=layer), "") for layer in range(len(weights))]
    ranked = range(len(pairs)) if shares is None else np.argsort(-shares.ravel(), kind="stable").tolist()
    flat, relative = with_means(weights, neutral), neutral is not None
    texts = {"word": say(RELATIVE)} if relative else {}
    if shares is None or np.isnan(shares).all():  # the heads are not sorted
        texts["every"] = say("All heads")
    means = flat.sum(1, keepdims=True) / max(len(caption), 1)
    hatched = np.concatenate([blocked.astype(np.uint8), np.zeros((1, len(boxes)), np.uint8)])
    hatched[:, list(removed)] = 2
    about = {
        "caption": caption,
        "boxes": boxes,
        "chances": [chance(float(one)) for one in chances],
        "hatches": [ink("sliding"), ink("drawn")],
        "heads": [{"name": name, "share": share} for name, share in every],
        "order": [0, *range(1 + len(pairs), len(every)), *(1 + head for head in ranked)],
        **{"mode": mode, "hint": say(HINTS[mode]), "relative": relative},
        "words": words("images") | texts,
        "itself": say(ITSELF) if neutral is not None and np.array_equal(weights[:, :, 0], neutral) else "",
        "alt": say("The picture, in {count} patches. Arrow keys move over them.", count=len(boxes)),
    }
    return packed(about | plain, np.concatenate([flat, means], axis=1).astype("<f4").tobytes(), hatched.tobytes())


def weights_table(
    weights: np.ndarray,
    blocked: np.ndarray,
    caption: Sequence[str],
    patches: Sequence[str],
    head: int,
    neutral: np.ndarray | None = None,
) -> FigureTable:
    """Return a table of each word's attention to each patch. head: a row of with_means. The rest: see images_packet."""
    shown = np.where(blocked, np.nan, with_means(weights, neutral)[head])
    return grid(shown.T, patches, numbered(caption), say("Attention to each patch"), say("blocked"))


def masks_table(found: np.ndarray, own: Sequence[str], shown: tuple[str, str], scenes: int) -> Markup:
    """Return a table of models under each mask. found: nats per word and the share of exact captions, [V, masks, 2].

    own: the mask that each of the V models was trained with. shown: the model and the mask on the page, whose cell is
    framed. scenes: the number of scenes measured.
    """
    rows = [[th(say("image mask")), *(th(say("trained: {mask}", mask=say(MASKS[name]))) for name in own)]]
    best = found[:, :, 0].argmin(1)
    for row, (mask, name) in enumerate(MASKS.items()):
        rows.append([td(say(name), "wraps")])
        for column, version in enumerate(own):
            loss, exact = found[column, row].tolist()
            text = say("{loss} nats, {share} exact", loss=number(loss), share=percent(exact))
            frame = "outline:2px solid currentColor;outline-offset:-2px" if shown == (version, mask) else ""
            rows[-1].append(td(tag("b", text) if row == best[column] else text, "wraps", style=frame))
    right = sum(list(MASKS)[row] == version for row, version in zip(best, own, strict=True))
    words = N_(
        "On {scenes} held-out scenes, {right} of {count} models have their lowest loss (bold) under the mask that they "
        "were trained with."
    )
    sentence = say(words, scenes=scenes, right=right, count=len(own))
    return table(rows, "numbers masks") + paragraph(sentence, "key")  # not shown


def sentence(caption: Sequence[str], true: Sequence[str] | None, standard: Sequence[str], best: Best | None) -> Markup:
    """Say what the model writes, whether that is the scene's caption, and which head localizes its shapes best.

    true: None if not known, () if two shapes have no order. standard: what it writes under the mask that it was
    trained with, with all patches. best: a head's name, its localization, the chance level, and the localization by
    area with its maximum.
    """

    def quoting(words: str, some: Sequence[str]) -> Markup:
        return filled(words, caption=tag("span", " ".join(some), translate="no"))

    parts: list[str] = [quoting(say("The model writes “{caption}”."), caption)]
    if tuple(caption) != tuple(standard):
        parts.append(quoting(say("Under its own mask, with all patches, the model writes “{caption}”."), standard))
    if true == ():
        parts.append(say("Two shapes have the same position in the prompt's direction: neither order is right."))
    elif true is not None:
        right = tuple(caption) == tuple(true)
        parts.append(
            say("That is the scene's caption.") if right else quoting(say("The scene's caption is “{caption}”."), true)
        )
    if best is not None:
        words = N_(
            "Over the words of the scene's caption that name a size, a colour or a shape, {head} puts on average "
            "{share} of its attention on the image on patches that touch the box of the shape described (its "
            "localization); spread evenly, it would be {chance}. With each patch weighed by its area in the box it is "
            "{area}, of at most {most}."
        )
        shares = dict(zip(("share", "chance", "area", "most"), map(percent, best[1:]), strict=True))
        parts.append(say(words, head=best[0], **shares))
    return Markup(together(parts))


VEIL = np.array([16, 18, 24])  # as in images.js
OPACITY = 0.8  # of the veil over a token of weight 0
SMALLEST, LARGEST = 480, 640  # pixels across
STRIP = 24  # tokens per row if their pixels are not known
LIT_ALT = N_("The image, in {count} tokens. Arrow keys move over them.")
IMAGE_HINT = N_("Point at a token of the text or at a part of the image.")
ALONE = N_("“{word}”: {head} gives {share} of its attention to the image, most to {patch}: {most}.")
OF_LAYER = N_("“{word}”: {head} gives {share} of its attention to these image tokens, most to {patch}: {most}.")
OVER_NEUTRAL = N_("“{word}”: in {head}, its attention over the neutral prompt's is largest at {patch}: {most}.")
NO_MAPPING = N_("For an image of this size it is not known which pixels a token covers: tokens are listed in order.")


@dataclass(frozen=True, eq=False)
class ImageHeatmaps:
    """Attention of a layer's heads from a text to an image. heads: their names. picture: uint8 [height, width, 3].
    boxes: of the P image tokens, in pixels. weights: float32 [H,S,P]; blocked: for each mask that is on, bool [S,P],
    True = it blocks the cell. labels: of the S tokens. query: the index of the one shown. mapped: whether the boxes
    are pixels of the image; unmapped: the number of further image tokens without pixels. neutral: float32 [H,P], of a
    neutral prompt, to show weights divided by it."""

    heads: tuple[str, ...]
    picture: np.ndarray
    boxes: tuple[Box, ...]
    names: tuple[str, ...]
    weights: np.ndarray
    blocked: dict[str, np.ndarray]
    labels: tuple[str, ...]
    query: int
    mapped: bool = True
    unmapped: int = 0
    neutral: np.ndarray | None = None

    def any_blocked(self) -> np.ndarray:
        """Return bool [S,P], True where at least one mask blocks the cell."""
        return blocked_by_any(self.blocked, self.weights.shape[1:])

    def layers(self) -> "Iterator[ImageHeatmaps]":
        """Yield parts whose boxes do not overlap, in the order of the tokens; each part is sorted row by row."""
        edges, begins = np.array(self.boxes), [0]
        for one, (left, top, right, bottom) in enumerate(self.boxes):
            others = edges[begins[-1] : one]
            wide = np.minimum(others[:, 2], right) - np.maximum(others[:, 0], left)
            high = np.minimum(others[:, 3], bottom) - np.maximum(others[:, 1], top)
            if ((wide > 0.01) & (high > 0.01)).any():
                begins.append(one)
        for begin, end in zip(begins, [*begins[1:], len(edges)], strict=True):
            some = sorted(range(begin, end), key=lambda one: (round(edges[one, 1]), edges[one, 0]))
            boxes, names = tuple(self.boxes[one] for one in some), tuple(self.names[one] for one in some)
            weights = self.weights[:, :, some]
            blocked = {name: mask[:, some] for name, mask in self.blocked.items()}
            neutral = None if self.neutral is None else self.neutral[:, some]
            yield replace(self, boxes=boxes, names=names, weights=weights, blocked=blocked, neutral=neutral)


def neutral_help(neutral: str) -> str:
    words = N_(
        "Relative: what an image token gets from a token of the text, divided by what it gets from the last token of "
        "the neutral prompt “{prompt}” with the same image; a divisor below {least} counts as {least}. A mean is "
        "divided by the mean (Zhang et al. 2025)."
    )
    return say(words, prompt=neutral, least=percent(MIN_ATTENTION))


def strip(count: int) -> tuple[np.ndarray, tuple[Box, ...]]:
    """Return a grey picture with a box for each of `count` tokens whose pixels are not known."""
    rows = -(-count // STRIP)
    size = min(count, STRIP) * 20, rows * 20
    boxes = (token.box for token in grid_tokens(rows, min(count, STRIP), (0, 0, *size), size))
    return np.full((size[1], size[0], 3), 170, np.uint8), tuple(boxes)[:count]


def shown_at(picture: np.ndarray, boxes: Sequence[Box]) -> tuple[np.ndarray, tuple[Box, ...]]:
    """Scale a picture and the boxes in it down to at most LARGEST pixels across."""
    small = Image.fromarray(picture)
    small.thumbnail((LARGEST, LARGEST))
    x, y = small.width / picture.shape[1], small.height / picture.shape[0]
    return np.asarray(small), tuple((left * x, top * y, right * x, bottom * y) for left, top, right, bottom in boxes)


def image_attention(found: "ImageAttention", heads: tuple[str, ...], picture: np.ndarray, query: int) -> ImageHeatmaps:
    """Return the ImageHeatmaps of a run. heads: their names. picture: the image, uint8. query: an index of labels."""
    pixels = shown_at(picture, found.boxes) if found.boxes else strip(len(found.names))
    weights, mapped = (found.weights, found.blocked), bool(found.boxes)
    return ImageHeatmaps(
        heads, *pixels, found.names, *weights, found.labels, query, mapped, found.unmapped, found.neutral
    )


def image_attention_sentence(view: ImageHeatmaps) -> str:
    """Say how much of its attention the query gives the image in the first head, and which image token gets most."""
    weights = view.weights[0, view.query]
    values = {"name": view.heads[0], "token": view.labels[view.query], "share": percent(float(weights.sum()))}
    if view.any_blocked()[view.query].all():
        return say("{name}: masks block all attention of “{token}” to the image.", **values)
    most = int(weights.argmax())
    words = N_("{name}: “{token}” gives {share} of its attention to the image, most to {place}: {most}.")
    if view.unmapped:
        words = N_("{name}: “{token}” gives {share} of its attention to tokens with pixels, most to {place}: {most}.")
    return say(words, **values, place=view.names[most], most=percent(float(weights[most])))


def mapping_note(view: ImageHeatmaps) -> str:
    """Say which image tokens have no known pixels; "" if all have."""
    if not view.mapped:
        return say(NO_MAPPING)
    if not view.unmapped:
        return ""
    return say_count(
        "One image token covers no pixels, such as a line break or padding, and is left out.",
        "{count} image tokens cover no pixels, such as line breaks or padding, and are left out.",
        view.unmapped,
    )


def composed(view: ImageHeatmaps) -> np.ndarray:
    """Return the picture under the veil of the first head, uint8, at least SMALLEST pixels wide."""
    times = -(-SMALLEST // view.picture.shape[1])
    pixels = np.kron(view.picture, np.ones((times, times, 1))).astype(np.float64)
    weights = view.weights[0, view.query]
    veils = OPACITY * (1 - np.sqrt(weights / (weights.max(initial=0) or 1)))
    for box, veil in zip(view.boxes, veils, strict=True):
        left, top, right, bottom = (round(edge * times) for edge in box)
        pixels[top:bottom, left:right] += (VEIL - pixels[top:bottom, left:right]) * veil
    return pixels.round().astype(np.uint8)


def weights_tables(view: ImageHeatmaps, head: int = 0) -> list[FigureTable]:
    """Return a table of each text token's attention to each image token. head: as in image_attention_packet."""
    neutral = None if view.neutral is None else view.neutral[None]
    return [weights_table(view.weights[None], view.any_blocked(), view.labels, view.names, head, neutral)]


def image_attention_packet(view: ImageHeatmaps, *, alone: bool, head: int = 0) -> bytes:
    """Return the packet of a layer of image tokens. alone: whether it is the only one. head: 0 for the mean of all
    heads, or 1 + its number."""
    several, (high, wide) = len(view.heads) > 1, view.picture.shape[:2]
    mean = say("mean of all heads") if several else view.heads[0]
    names = [mean, *view.heads, mean]
    template = OVER_NEUTRAL if view.neutral is not None else ALONE if alone and not view.unmapped else OF_LAYER
    neutral = None if view.neutral is None else view.neutral[None]
    hatched = np.zeros(view.weights.shape[1:], np.uint8)  # a cell has the hatch of the first mask that blocks it
    for hatch, mask in enumerate(view.blocked.values(), 1):
        hatched[mask & (hatched == 0)] = hatch
    boxes = tuple((left / wide, top / high, right / wide, bottom / high) for left, top, right, bottom in view.boxes)
    return images_packet(
        view.labels, np.zeros(len(view.labels)), view.weights[None], hatched, None, boxes, (), "look",
        picture=picture_uri(view.picture), smooth=wide > SMALLEST, names=view.names, head=head,
        word=view.query, changed=[False] * len(view.labels), heads=[{"name": name, "share": ""} for name in names],
        order=list(range(len(names) - 1 if several else 1)), hatches=list(map(ink, view.blocked)), hint=say(IMAGE_HINT),
        alt=say(LIT_ALT, count=len(boxes)), neutral=neutral,
        words=words("images") | {"word": say(template), "caption": say("Text"), "every": say("All heads")},
    )  # fmt: skip
