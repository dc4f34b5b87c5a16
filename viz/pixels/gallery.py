"""Written digits side by side, with what a recogniser takes them for."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from PIL import Image

from i18n import say
from viz.hatch import data_uri
from viz.pixels.pictures import GREYS, PIXELS, SIDE


@dataclass(frozen=True, eq=False)
class GalleryCard:
    """A picture of a gallery: levels [64]; caption; good: True or False for a verdict, None without one.

    given: how many of its pixels the model was given, the others it wrote.
    """

    levels: np.ndarray
    caption: str
    good: bool | None = None
    given: int = 0


def gallery(cards: Sequence[GalleryCard], columns: int = 10) -> Markup:
    """Pictures as HTML, so many in a row, each with its caption; a verdict is a frame and a word of the caption."""
    style = (
        f".gallery{{display:grid;grid-template-columns:repeat({columns},minmax(0,1fr));gap:10px;max-width:1100px}}"
        ".gallery figure{margin:0;text-align:center}"
        ".gallery img{width:100%;image-rendering:pixelated;border:3px solid rgba(128,128,128,.35);border-radius:4px}"
        ".gallery .yes img{border-color:#009E73}.gallery .no img{border:3px dashed #D55E00}"
        ".gallery figcaption{font-size:.8rem;line-height:1.15;margin-top:.15rem}"
    )
    pictures = Markup().join(map(_figure, cards))
    return Markup('<style>{}</style><div class="gallery">{}</div>').format(Markup(style), pictures)


def _figure(card: GalleryCard) -> Markup:
    verdict = "" if card.good is None else "yes" if card.good else "no"
    alt = say("A written digit: {caption}", caption=card.caption)
    return Markup('<figure class="{}"><img src="{}" alt="{}"><figcaption>{}</figcaption></figure>').format(
        verdict, data_uri(picture_png(card.levels, card.given)), alt, card.caption
    )


def picture_png(levels: np.ndarray, given: int = 0, scale: int = 10) -> bytes:
    """levels [64] as a PNG, ink on paper; a line under the pixels that were given."""
    shades = np.array([int(grey[1:3], 16) for grey in GREYS], np.uint8)[levels.reshape(SIDE, SIDE)]
    large = np.repeat(np.repeat(shades, scale, 0), scale, 1)
    pixels = np.stack([large] * 3, -1)
    if 0 < given < PIXELS:
        row, column = divmod(given, SIDE)
        line = np.array([0xCC, 0x79, 0xA7], np.uint8)
        pixels[row * scale - 1 : row * scale + 1, column * scale :] = line
        if column:
            pixels[(row + 1) * scale - 1 : (row + 1) * scale + 1, : column * scale] = line
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
