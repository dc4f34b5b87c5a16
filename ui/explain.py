"""The words around the pictures: limits, the sentence's numbers, captions and alternative texts."""

import math
from pathlib import Path

import numpy as np
import torch

from model.base import Description, Model, TokenizedText
from model.heads import measures
from model.heads.survey import Survey
from model.settings import Settings
from model.text import TokenBatch
from ui import run_view
from ui.markdown import escaped
from ui.run_view import RunView
from viz.heads.colours import STANDARD_COLOURS, Colours
from viz.leaks import mean_share
from viz.loss_words import loss_words
from viz.numbers import Leak, percent
from viz.palette import MASK_COLOURS
from viz.sentence import Scene
from viz.view import MOST_CELLS, HeadView

NO_PREDICTIONS = {
    "encoder": "An encoder predicts no next token: it reads a whole text at once. Its attention is all there is.",
    "decoder": "This model was saved without the layer that predicts tokens. Its attention is all there is.",
}
FORMULA = """
A query **q** and a key **k**, d numbers each, come from the two tokens' states.

1. **scaled score**: q · k / √d (some models cap it or add a bias for the distance)
2. **mask**: a blocked cell's score becomes −∞
3. **weight**: softmax along the row, e^score / Σ e^score: a row's weights sum to 1 (less where a model has sinks)
   and a blocked cell's is exactly 0. A row whose every cell is blocked gets no weight at all.

The head's output for a token is the sum of all tokens' values, each times its weight.
(Vaswani et al. 2017, *Attention is all you need*, equation 1.)
"""
NOT_MEASURED = float("nan")
WHY_CAUSAL = "Why causal: a model trained without the mask"
MISLED = (
    "This model was trained under its standard masks and met no others: what a lifted mask lets in is new to it, and "
    "can mislead it."
)
OVERVIEW = (
    "Every head, colours from 0 to 1; L4 H0 is layer 4, head 0, both counted from 0. Click one to see it large; or "
    "arrow keys and Enter."
)
NATS = "A token's loss is −ln of the probability that it was given, in nats: 0 is certainty, 2.3 is one in ten."


def title_of(model: Model) -> str:
    """The model's name for markdown."""
    return escaped(plain_title(model))


def plain_title(model: Model) -> str:
    """The model's name, of a folder its last part."""
    return Path(model.name).name if model.name.startswith(("/", "~", ".")) else model.name


def size(batch: TokenBatch, row: int) -> str:
    """How long the row is."""
    real = int(batch.keep[row].sum())
    padding = batch.ids.shape[1] - real
    return f"{real} tokens" + (f" + {padding} padding" if padding else "")


def limits(model: Model, reading: TokenizedText) -> list[str]:
    """A sentence for everything of the text that is not shown."""
    batch = reading.batch
    notes = _cuts(model, batch.cut, "Row") if batch.source is None else []
    if batch.source is not None:
        notes = _cuts(model, batch.source.cut, "Source row") + _cuts(model, batch.cut, "Target row")
    if reading.rows_left_out:
        notes.append(
            f"Shown are the first {len(reading.rows):,} lines, {reading.rows_left_out:,} more are left out: "
            f"the page takes {Settings.from_environment().rows} lines at the most, fewer when they are long."
        )
    return notes


def _cuts(model: Model, cuts: tuple[str, ...], what: str) -> list[str]:
    return [
        f"{title_of(model)} reads at most {model.context:,} tokens. "
        f"{what} {number} shows the first {model.context:,}; its last {len(cut):,} characters are cut, "
        f"from “{escaped(_beginning(cut))}” on."
        for number, cut in enumerate(cuts, 1)
        if cut
    ]


def scene(now: RunView, scope: str, name: str, view: HeadView, layer: int, head: int) -> Scene:
    """What the sentence needs to know about the head on screen."""
    row, model = now.row, now.model
    queries, keys = now.run.queries, now.run.keys
    real, keep = queries.keep[row], keys.keep[row]
    weights = torch.from_numpy(view.weights)
    future, padding = measures.leak(weights, keep, real)
    across = now.run.attention == "cross"
    begin = queries.real(row).start
    later, much_later = real.clone(), real.clone()
    if not across:
        later[begin] = False  # the first token has nothing but itself to look at
        much_later[begin : begin + 2] = False  # to the second, the token before is the first
    return Scene(
        name=name,
        across=across,
        can_be_causal="causal" in now.shown(layer, head).available,
        causal=now.masks.causal,
        padding=now.masks.padding,
        window=now.masks.window or "window" not in model.describe().masks,
        chunk=now.masks.chunk or "chunk" not in model.describe().masks,
        standard_causal=model.standard.causal,
        layer_only=scope == "layer",
        only_attention=model.attentions == ("self",),
        has_padding=not bool(keep.all()),
        pad_side=keys.pad_side,
        leak=Leak(float(future), float(padding)),
        previous=NOT_MEASURED if across else float(measures.previous_token(weights, much_later)),
        itself=NOT_MEASURED if across else float(measures.own_token(weights, later)),
        first=float(measures.key_share(weights, keys.real(row).start, later)),
        induction=NOT_MEASURED if across else float(measures.induction(weights, keys.ids[row], later)),
        spread=2 ** float(measures.entropy(weights, later)),
    )


def losses_moved(now: RunView, losses: np.ndarray, standard: np.ndarray) -> str:
    """What the changed masks did to the losses of the row."""
    return loss_words(losses, standard, list(now.run.batch.pieces[now.row]))


def lifts_the_causal_mask(now: RunView) -> bool:
    """Whether a model that was trained with the causal mask runs without it."""
    return now.model.standard.causal and not now.masks.causal and now.model.kind == "decoder"


def leaks(survey: Survey, layer: int, head: int) -> tuple[Leak, Leak]:
    """One head's shares, and the mean of those of all heads that have one."""
    one = Leak(float(survey.future[layer, head]), float(survey.padding[layer, head]))
    return one, Leak(mean_share(survey.future), mean_share(survey.padding))


def model_found(model: Model) -> str:
    """What was found in the model, in a few lines."""
    found = model.describe()
    layers = _counts(found.layers) if len(found.layers) > 1 else f"{found.layers['self']}"
    masks = ", ".join(found.masks)
    if found.window is not None:
        masks += f" ({found.window} positions, in {found.windowed} layers)"
    if found.other_layers():
        masks += f". {found.other_layers().rstrip('.')}"
    millions = found.parameters / 1e6
    size = f"{millions:,.0f} M parameters" if millions >= 10 else f"{millions:.2g} M parameters"
    context = f"context {found.context:,}" + (
        f", {model.context:,} of it here" if model.context < found.context else ""
    )
    article = "an" if found.kind.startswith("e") else "a"
    what = f"{article} {found.kind} of {size} ({found.architecture})"
    precision = f", {found.precision}" if found.precision else ""
    return f"{title_of(model)}: {what}, {layers} layers, {_heads(found)}, {context}{precision}. Masks: {masks}."


def _heads(found: Description) -> str:
    """One number where all attentions have as many, else one for each."""
    parts = found.heads_by_part or {"self": (found.heads, found.key_value_heads)}
    queries = {name: heads for name, (heads, _) in parts.items()}
    keys = {name: heads for name, (_, heads) in parts.items()}
    shared = f" sharing {_total(keys)} key-value heads" if keys != queries else ""
    return f"{_total(queries)} heads{shared}"


def _total(counts: dict[str, int]) -> str:
    return _counts(counts) if len(set(counts.values())) > 1 else f"{next(iter(counts.values()))}"


def _counts(counts: dict[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in counts.items())


def sharing(look: RunView, layer: int, head: int) -> str:
    """Which query heads share the chosen one's keys and values; nothing where none does."""
    heads = run_view.shape(look.model, look.run.attention)[1]
    group = heads // look.shown(layer, head).key_value_heads
    others = [str(other) for other in range(heads) if other // group == head // group and other != head]
    return f"Head {head} reads key-value head {head // group}, as do {', '.join(others)}. " if others else ""


def head_alt(name: str, view: HeadView, changed: bool) -> str:
    """The heatmap for whoever cannot see it: its size, where its weight is, and what is blocked."""
    blocked = view.any_blocked()
    query, key = np.unravel_index(int(view.weights.argmax()), view.weights.shape)
    masks = " and ".join(name for name, mask in view.blocked.items() if mask.any()) or "no mask"
    beside = " Beside it the same head with the standard masks, and the difference." if changed else ""
    largest = f"query {view.first + query} ({view.queries[query]}) on key {view.first_key + key} ({view.keys[key]})"
    return (
        f"Attention of {name}, {view.weights.shape[0]} queries by {view.weights.shape[1]} keys. The largest weight, "
        f"{view.weights.max():.2f}, is that of {largest}. "
        f"{percent(float(blocked.mean()))} of the cells are blocked, by {masks}.{beside}"
    )


def loss_alt(now: np.ndarray, standard: np.ndarray) -> str:
    """The means of the two curves."""
    return f"Loss per token. The mean is {_mean(now)} nats now and {_mean(standard)} under the standard masks."


def loss_caption(now: np.ndarray, standard: np.ndarray, *, changed: bool) -> str:
    """The means of the two curves, in one line."""
    return f"Loss per token, mean {_mean(now)} nats" + (f" now, {_mean(standard)} standard" if changed else "")


def key(views: list[HeadView], zmax: float, *, colours: Colours = STANDARD_COLOURS, sharing: str = "") -> str:
    """HTML: how to read the colours and the hatching of the heatmaps, the first of which is the large one."""
    parts = [f"{sharing}{colours.words(zmax, sides=len(views) > 1)}"]
    names = dict.fromkeys(name for view in views for name, mask in view.blocked.items() if mask.any())
    swatches = [f'<span class="swatch" style="background:{MASK_COLOURS[name]}"></span>{name}' for name in names]
    parts.append(
        f"Hatched cells are blocked by {', '.join(swatches)}: no weight can be there."
        if names
        else "No cell is blocked."
    )
    if any(view.any_blocked().all(1).any() for view in views):
        parts.append("A row with nothing to attend to gets weight 0 everywhere and adds nothing.")
    longest = max(views[0].weights.shape)
    if longest > MOST_CELLS:
        step = math.ceil(longest / MOST_CELLS)
        parts.append(
            f"Each cell is the largest of {step} × {step} weights: {longest} tokens are too many for a screen."
        )
    return f'<p class="key">{" ".join(parts)}</p>'


def _mean(losses: np.ndarray) -> str:
    return "–" if np.isnan(losses).all() else f"{np.nanmean(losses):.2f}"


def _beginning(text: str) -> str:
    first = " ".join(text.split())
    return first if len(first) <= 40 else first[:40] + "…"
