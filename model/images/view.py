"""A picture and its caption as there are to draw of them: plain arrays and words.

Sizes: L layers, H heads, S words, P image tokens, Q queries, K keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from model.heads.view import HeadView, head_view
from model.images.captioner import END, LONGEST, PATCHES, WORDS, CaptionerModel, encode, image_weights
from model.images.measures import chance, inside, localization
from model.images.scenes import Scene, caption, render
from model.masks import MaskSpec, Stroke
from model.spec import MOST_POSITIONS
from model.trace import Trace

TOP = 5


@dataclass(frozen=True, eq=False)
class CaptionView:
    """A caption that a model wrote, or was given. words: without <end>. chances: of each, float32 [S], 0 to 1, when it
    was written. top: of each word, the likeliest there, with their probabilities. loss: nats a word, <end> among them.

    weights: of the steps that write the words, on the image, float32 [L,H,S,P]; blocked: what these may not attend to,
    bool [S,P].
    """

    words: tuple[str, ...]
    chances: np.ndarray
    top: tuple[tuple[tuple[str, float], ...], ...]
    loss: float
    weights: np.ndarray
    blocked: np.ndarray


def without(spec: MaskSpec, removed: Sequence[int]) -> MaskSpec:
    """The spec with these patches removed: no token may attend to them."""
    strokes = (Stroke("block", 0, patch, MOST_POSITIONS, patch) for patch in removed)
    return replace(spec, drawn=(*spec.drawn, *strokes))


def write(model: CaptionerModel, picture: np.ndarray, prompt: str, spec: MaskSpec) -> CaptionView:
    """The caption that the model writes, always the likeliest word, of a picture uint8 [SIDE,SIDE,3]."""
    words: list[str] = []
    while len(words) < LONGEST - 1:
        likeliest = int(model.run(encode(picture[None], prompt, words), spec).next_token().argmax())
        if likeliest == END:
            break
        words.append(WORDS[likeliest])
    return read(model, picture, prompt, tuple(words), spec)


@dataclass(frozen=True, eq=False)
class LocatedHeads:
    """Of a scene with its own caption. loss: nats a word. shares: each head's localization, [L,H]; even: chance."""

    loss: float
    shares: np.ndarray
    even: float


def locate(model: CaptionerModel, scene: Scene, prompt: str, spec: MaskSpec) -> LocatedHeads:
    words = caption(scene, prompt)
    places = inside(scene, words)
    found = read(model, render([scene])[0], prompt, tuple(word.text for word in words), spec)
    return LocatedHeads(found.loss, localization(found.weights, places, words), chance(places, words))


@torch.inference_mode()
def read(
    model: CaptionerModel, picture: np.ndarray, prompt: str, words: tuple[str, ...], spec: MaskSpec
) -> CaptionView:
    """The same of a given caption. Raises KeyError for words that the model does not know."""
    trace = model.run(encode(picture[None], prompt, words), spec)
    chances = trace.logits[0, PATCHES:].softmax(-1)  # [S+1,V]
    ids = torch.tensor([*(WORDS.index(word) for word in words), END])
    given = chances.gather(-1, ids[:, None])[:, 0]
    best = chances[:-1].topk(TOP)
    pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    top = tuple(tuple((WORDS[one], chance) for chance, one in zip(*some, strict=True)) for some in pairs)
    blocked = ~trace.allowed(0)[PATCHES:-1, :PATCHES].numpy()
    loss = -float(given.clamp(min=1e-30).log().mean())
    return CaptionView(words, given[:-1].numpy(), top, loss, image_weights(trace), blocked)


def whole_head(trace: Trace, row: int, masks: MaskSpec, layer: int | None, head: int, *, folded: bool) -> HeadView:
    """The full heatmap of a head, or, layer None, of the mean of all. folded: image tokens as one row and column."""
    view = head_view(trace, row, masks, layer or 0, head)
    if layer is None:
        mean = torch.cat([weights for _, _, weights in trace.blocks(row, masks)]).mean(0)
        view = replace(view, weights=mean.numpy())
    return fold(view, PATCHES) if folded else view


def fold(view: HeadView, count: int) -> HeadView:
    """The first so many tokens as one: what they attend to on average, and what they all are attended to."""
    label = f"image ×{count}"

    def merged(values: np.ndarray, rows: np.ufunc, columns: np.ufunc) -> np.ndarray:
        above = np.concatenate([rows.reduce(values[:count], keepdims=True), values[count:]])
        return np.concatenate([columns.reduce(above[:, :count], axis=1, keepdims=True), above[:, count:]], axis=1)

    weights = merged(view.weights, np.add, np.add)
    weights[0] /= count
    return replace(
        view,
        weights=weights,
        scaled=merged(view.scaled, np.maximum, np.maximum),
        blocked={name: merged(mask, np.logical_and, np.logical_and) for name, mask in view.blocked.items()},
        queries=[label, *view.queries[count:]],
        keys=[label, *view.keys[count:]],
    )
