"""A picture and its caption: as a packet for components/images.js, and what the masks are worth as tables.

Sizes: L layers, H heads, S words, P patches.
"""

import io
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from PIL import Image

from i18n import N_, say, together
from model.heads.view import head_name
from model.images.patches import Box
from viz.components.words import packed, words
from viz.hatch import data_uri, ink
from viz.html import filled, table, tag, td, th
from viz.numbers import chance, percent

MASKS = {
    "causal": N_("causal"),
    "prefix": N_("prefix"),
    "block": N_("block"),
    "window": N_("block within a window"),
}
HINTS = {
    "look": N_("Point at a word or at a patch; click a word to keep it."),
    "place": N_("Click where the centre of the shape shall be. Keys: arrows and Enter."),
    "remove": N_("Click a patch to remove it, or to bring it back. Keys: arrows and Enter."),
}
ALT = N_("The picture, in {count} patches. Arrow keys move over them.")


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
    *,
    picture: str,
    boxes: tuple[Box, ...],
    names: tuple[str, ...],
    changed: tuple[bool, ...],
    removed: tuple[int, ...],
    head: int,
    word: int,
    mode: str,
) -> bytes:
    """chances [S]; weights [L,H,S,P]; blocked bool [S,P]. shares: each head's localization [L,H], where it is known.

    picture: a URI. boxes: of the patches, in shares of the picture's width and height. head: 0 for the mean of all, or
    1 + its number. word: the one that stays lit, -1 for none. changed: of each word, whether the standard run has
    another. mode: of HINTS.
    """
    layers, heads = weights.shape[:2]
    every = [{"name": say("mean of all heads"), "share": ""}]
    for layer, one in np.ndindex(layers, heads):
        share = "" if shares is None else percent(float(shares[layer, one]))
        every.append({"name": head_name(layer, one), "share": share})
    ranked = [] if shares is None else (1 + np.argsort(-shares.ravel(), kind="stable")).tolist()
    flat = weights.reshape(layers * heads, *weights.shape[2:])
    planes = np.concatenate([flat.mean(0, keepdims=True), flat]).astype("<f4")
    about = {
        "picture": picture,
        "smooth": len(picture) > 20_000,
        "boxes": boxes,
        "names": names,
        "grid": round(len(boxes) ** 0.5),
        "caption": caption,
        "chances": [chance(float(one)) for one in chances],
        "changed": changed,
        "removed": removed,
        "hatches": [ink("sliding"), ink("drawn")],
        "heads": every,
        "order": [0, *(ranked or range(1, len(every)))],
        **{"head": head, "word": word, "mode": mode, "hint": say(HINTS[mode]), "words": words("images")},
        "alt": say(ALT, count=len(boxes)),
    }
    return packed(about, planes.tobytes(), blocked.astype(np.uint8).tobytes())


def masks_table(found: np.ndarray, own: Sequence[str], shown: tuple[str, str]) -> Markup:
    """What each version is worth under each mask. found: nats a word and the share of exact captions, [V, masks, 2].

    own: the mask of each version. shown: the version and the mask that the page shows, whose cell is framed.
    """
    rows = [[th(say("image mask")), *(th(say("trained: {mask}", mask=say(MASKS[name]))) for name in own)]]
    for row, (mask, name) in enumerate(MASKS.items()):
        cells = [td(say(name), "wraps")]
        for column, version in enumerate(own):
            loss, exact = found[column, row]
            text = say("{loss:.3f} nats, {share} exact", loss=loss, share=percent(float(exact)))
            best = row == int(found[column, :, 0].argmin())
            frame = "outline:2px solid currentColor;outline-offset:-2px" if shown == (version, mask) else ""
            cells.append(td(tag("b", text) if best else text, "wraps", style=frame))
        rows.append(cells)
    return table(rows, "numbers masks")  # not shown


def masks_sentence(found: np.ndarray, own: Sequence[str]) -> str:
    """Whether each version has its lowest loss under the mask that it was trained with."""
    best = [list(MASKS)[int(some[:, 0].argmin())] for some in found]
    right = sum(one == version for one, version in zip(best, own, strict=True))
    words = N_("{right} of {count} versions have their lowest loss (bold) under the mask that they were trained with.")
    return say(words, right=right, count=len(own))


def sentence(
    caption: Sequence[str], true: Sequence[str] | None, standard: Sequence[str], best: tuple[str, float, float] | None
) -> Markup:
    """What the model writes, whether that is the scene's caption, and which head is best at finding its shapes.

    standard: what it writes under the mask that it was trained with, nothing removed. best: a head's name, its
    localization and the chance level.
    """
    said: list[str] = [_quoting(say("The model writes “{caption}”."), caption)]
    if tuple(caption) != tuple(standard):
        said.append(_quoting(say("Under its own mask, with all patches, the model writes “{caption}”."), standard))
    if true is not None:
        right = tuple(caption) == tuple(true)
        wrong = say("The scene's caption is “{caption}”.")
        said.append(say("That is the scene's caption.") if right else _quoting(wrong, true))
    if best is not None:
        words = N_(
            "{head} puts {share} of its attention on the image inside the box of the shape described; spread "
            "evenly, it would be {chance}."
        )
        said.append(say(words, head=best[0], share=percent(best[1]), chance=percent(best[2])))
    return Markup(together(said))


def _quoting(words: str, caption: Sequence[str]) -> Markup:
    return filled(words, caption=tag("span", " ".join(caption), translate="no"))
