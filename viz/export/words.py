"""Captions of pictures and files: versions, masks, and how to read a picture."""

from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata

import numpy as np

from i18n import N_, listed, say, together
from model.atlas.result import EVERY_MEASURE, Atlas
from model.attribution.parts import ScoreSplit
from model.heads.view import HeadView
from viz.heads.atlas import dotted
from viz.heads.attribution import largest_dimensions, other_pairs, reaches
from viz.heads.colours import Colours
from viz.html import signed
from viz.mask_styles import mask_name

NAMED = ("unmask", "torch", "transformers")


def version() -> str:
    """Return the installed package's version, or "checkout"."""
    return _of("unmask") or "checkout"


def versions() -> str:
    """Return the versions of the installed packages in NAMED: "unmask checkout, torch 2.13.0, transformers 5.23.0"."""
    found = {name: _of(name) for name in NAMED} | {"unmask": version()}
    return ", ".join(f"{name} {one}" for name, one in found.items() if one)


def _of(name: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return ""


HATCHED = N_("Hatched cells are blocked.")
STRIP_COLOURS = N_(
    "Blue is below 0, red above; the last colours are ±{both:.3g} for query and key, and ±{each:.3g} for their "
    "products."
)
TERMS = N_(
    "Each bar is a term of the score: what the first source wrote into the query times what the second wrote into the "
    "key, with the norms frozen."
)


def masks_sentence(on: Sequence[str], lifted: Sequence[str], layer: str = "") -> str:
    """Say which masks are on and which are lifted. layer: "L3" if only its weights are recomputed under them, otherwise
    ""."""
    held, up = (listed(map(mask_name, names)) for names in (on, lifted))
    held = held or say("none")
    masks = say("{on}; off: {lifted}", on=held, lifted=up) if up else held
    words = N_("{masks}, in {layer} only, whose weights are recomputed from the standard run's queries and keys")
    return say(words, masks=masks, layer=layer) if layer else masks


def caption(what: str, how: Sequence[str], *, masks: str, hashes: tuple[str, str], version: str) -> str:
    """Return a caption from which the picture can be reproduced. what: content and model; how: to read it; masks: in
    words; hashes: SHA-256 of the text and of a target, "" if there is none; version: of the programs that made it."""
    text, target = (digits[:12] for digits in hashes)
    made = [say("Text: SHA-256 {digits}.", digits=text)]
    made += [say("Target: SHA-256 {digits}.", digits=target)] if target else []
    return together([what, say("Masks: {masks}.", masks=masks), *filter(None, how), *made, f"Unmask {version}."])


def of_heads(views: Sequence[HeadView], colours: Colours, top: float) -> list[str]:
    """Explain a heatmap, or several of the same tokens. top: the weight of the last colour."""
    return [*_axes(views[0]), colours.words(top), *_hatched(any(view.any_blocked().any() for view in views))]


def change_caption(view: HeadView) -> list[str]:
    """Explain a heatmap of changes."""
    return [*_axes(view), say("Blue: the weight fell; red: it rose."), *_hatched(view.any_blocked().any())]


def _hatched(some: bool | np.bool_) -> list[str]:
    return [say(HATCHED)] if some else []


def _axes(view: HeadView) -> list[str]:
    rows, columns = view.weights.shape
    queries, keys = f"{view.first}–{view.first + rows - 1}", f"{view.first_key}–{view.first_key + columns - 1}"
    if view.layers:
        return [say("Rows are layers, columns are keys {keys}.", keys=keys)]
    if view.merged and rows == 1:  # its row stands for the queries in the title
        return [say("Columns are keys {keys}.", keys=keys)]
    return [say("Rows are queries {queries}, columns are keys {keys}.", queries=queries, keys=keys)]


def all_heads_caption(size: tuple[int, int], blocked: np.ndarray) -> list[str]:
    """Explain the picture of all heads. size: numbers of queries and keys. blocked: bool [L,H,S,S'], of each pixel."""
    (queries, keys), (rows, columns) = size, blocked.shape[2:]
    patch = []
    if rows < queries:
        patch = [say("{queries} queries; each pixel shows the largest weight of a patch.", queries=queries)]
    elif columns < keys:
        patch = [say("{keys} keys; each pixel shows the largest weight of a patch.", keys=keys)]
    colours = [say("Brightness is the square root of the weight."), *_hatched(blocked.any())]
    return [say("Rows are layers, columns are heads."), *patch, *colours]


def lines_caption(least: float) -> list[str]:
    """Explain lines between tokens. least: the smallest weight with a line."""
    line = N_("A line joins a query and a key with a weight of at least {least}; thicker lines mean larger weights.")
    return [say(line, least=least)]


def of_query(row: HeadView) -> list[str]:
    """Name the query whose row a picture shows."""
    return [say("The query is {position}: “{token}”.", position=row.first, token=row.queries[0])]


def contributions_caption(*, added: bool) -> list[str]:
    """Explain the contributions of keys. added: whether what a key adds to the residual stream is known."""
    moved = say("|v| is the norm of a key's value vector; weight × |v| is the norm of its weighted value.")
    adds = say("adds: the norm of what the key adds to the residual stream, after the output projection.")
    return [moved, adds if added else "", say("Each is a share of its sum over all keys.")]


def atlas_caption(atlas: Atlas, x: str, y: str) -> list[str]:
    """Explain the scatter plot of all heads. x, y: names of measures."""
    titles = {"across": say(EVERY_MEASURE[x].title), "up": say(EVERY_MEASURE[y].title)}
    point = say("Each point is a head: {across} on the x axis, {up} on the y axis.", **titles)
    return [point, dotted(atlas, x, y)]


def score_caption(found: ScoreSplit) -> list[str]:
    """Explain the parts of one cell's score."""
    both, _, each = reaches(found)
    how = [largest_dimensions(found), say(STRIP_COLOURS, both=both, each=each)]
    if found.sources is None:
        return [*how, say("The score is not split by source. {reason}.", reason=found.why_not)]
    left, rest = other_pairs(found)
    return [*how, say(TERMS), say("The other terms ({count:,}) sum to {rest}.", count=left, rest=signed(rest))]


def coloured_text_caption(row: HeadView) -> list[str]:
    """Explain a text that is coloured by one query's weights."""
    redder = say("The redder a token, the more attention it gets; weights of 0.005 or more are written below it.")
    return [redder, *_hatched(row.any_blocked().any())]
