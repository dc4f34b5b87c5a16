"""A picture and its caption: as a packet for components/images.js, and what the masks are worth as a table.

Sizes: L layers, H heads, S words, P patches.
"""

import io
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from PIL import Image

from i18n import N_, say, together
from model.heads.view import head_name
from model.images.patches import LEAST, Box, with_means
from viz.components import packed, words
from viz.figure_table import FigureTable, grid
from viz.hatch import data_uri, ink
from viz.html import filled, paragraph, table, tag, td, th
from viz.numbers import chance, number, percent

MASKS = {
    "causal": N_("causal"), "prefix": N_("prefix"), "block": N_("block"), "window": N_("block within a window"),
}  # fmt: skip
HINTS = {
    "look": N_("Point at a word or at a patch; click a word to keep it."),
    "place": N_("Click to set the centre of the shape. Keys: arrows and Enter."),
    "remove": N_("Click a patch to remove it, or to bring it back. Keys: arrows and Enter."),
}

SHOWN = {"raw": N_("Raw"), "relative": N_("Relative")}
RELATIVE = N_(
    "“{word}” (probability {chance}): in {head}, its attention over the prompt's is largest at {patch}: {most}."
)


def shown_help() -> str:
    words = N_(
        "Relative: what a patch gets from a word, divided by what it gets from the prompt word, where the first word "
        "is written and nothing is described yet; a divisor below {least} counts as {least}. A mean is divided by the "
        "mean. As in Zhang et al. 2025, who divide by the attention under a neutral prompt."
    )
    return say(words, least=percent(LEAST))


def picture_uri(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return data_uri(file.getvalue())


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
    """chances [S]; weights [L,H,S,P]; blocked bool [S,P]. shares: each head's localization [L,H], where it is known.
    neutral: of with_means.

    boxes: of the patches, in shares of the picture's width and height. mode: of HINTS. plain: what the component is
    told as it is: picture, a URI; smooth, whether to draw it so; names of patches; head, a row of
    with_means; word, the one that stays lit, S for none; changed, of each word whether the standard run has another.
    """
    places = list(np.ndindex(weights.shape[:2]))
    known = [""] * len(places) if shares is None else [percent(float(shares[place])) for place in places]
    every = [(say("mean of all heads"), ""), *zip((head_name(*place) for place in places), known, strict=True)]
    every += [(say("mean of layer {layer}", layer=layer), "") for layer in range(len(weights))]
    ranked = range(len(places)) if shares is None else np.argsort(-shares.ravel(), kind="stable").tolist()
    flat, relative = with_means(weights, neutral), neutral is not None
    means = flat.sum(1, keepdims=True) / max(len(caption), 1)
    hatched = np.concatenate([blocked.astype(np.uint8), np.zeros((1, len(boxes)), np.uint8)])
    hatched[:, list(removed)] = 2
    about = {
        "caption": caption,
        "boxes": boxes,
        "chances": [chance(float(one)) for one in chances],
        "hatches": [ink("sliding"), ink("drawn")],
        "heads": [{"name": name, "share": share} for name, share in every],
        "order": [0, *range(1 + len(places), len(every)), *(1 + head for head in ranked)],
        **{"mode": mode, "hint": say(HINTS[mode]), "relative": relative},
        "words": words("images") | ({"word": say(RELATIVE)} if relative else {}),
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
    """What each patch gets from each word in one head, a row of with_means. Else as images_packet's."""
    shown = np.where(blocked, np.nan, with_means(weights, neutral)[head])
    return grid(shown.T, patches, [f"{place}: {word}" for place, word in enumerate(caption)], "", say("blocked"))


def masks_table(found: np.ndarray, own: Sequence[str], shown: tuple[str, str], scenes: int) -> Markup:
    """What each version is worth under each mask. found: nats a word and the share of exact captions, [V, masks, 2].

    own: the mask of each version. shown: the version and the mask that the page shows, whose cell is framed. scenes:
    how many it was measured on.
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
    said = say(words, scenes=scenes, right=right, count=len(own))
    return table(rows, "numbers masks") + paragraph(said, "key")  # not shown


Best = tuple[str, float, float, float, float]


def sentence(caption: Sequence[str], true: Sequence[str] | None, standard: Sequence[str], best: Best | None) -> Markup:
    """What the model writes, whether that is the scene's caption, and which head is best at finding its shapes.

    standard: what it writes under the mask that it was trained with, nothing removed. best: a head's name, its
    localization, the chance level, and the localization by area with what it is at most.
    """

    def quoting(words: str, some: Sequence[str]) -> Markup:
        return filled(words, caption=tag("span", " ".join(some), translate="no"))

    said: list[str] = [quoting(say("The model writes “{caption}”."), caption)]
    if tuple(caption) != tuple(standard):
        said.append(quoting(say("Under its own mask, with all patches, the model writes “{caption}”."), standard))
    if true is not None:
        right = tuple(caption) == tuple(true)
        said.append(
            say("That is the scene's caption.") if right else quoting(say("The scene's caption is “{caption}”."), true)
        )
    if best is not None:
        words = N_(
            "{head} puts {share} of its attention on the image on patches that touch the box of the shape described; "
            "spread evenly, it would be {chance}. With each patch weighed by its area in the box it is {area}, of at "
            "most {most}."
        )
        shares = dict(zip(("share", "chance", "area", "most"), map(percent, best[1:]), strict=True))
        said.append(say(words, head=best[0], **shares))
    return Markup(together(said))
