"""What captioners make of pictures: the captions they write, and on scenes whose captions are known losses, exact
captions and localization, the share of a word's image attention inside the true bounding box.

Sizes: B rows, L layers, H heads, S words, P image tokens, N numbers of a patch, Q queries, K keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from model.heads.view import HeadView, head_view
from model.images import captioner
from model.images.captioner import CONTEXT, END, ID_OF, LONGEST, MASKS, PATCHES, CaptionerModel, CaptionNetwork, encode
from model.images.scenes import Scene, caption, held_out_scenes, render
from model.masks import MaskContext, MaskSpec, Stroke
from model.spec import MOST_POSITIONS
from model.trace import Trace

IGNORED = -100


@dataclass(frozen=True, eq=False)
class CaptionView:
    """A caption that a model wrote, or was given. words: without <end>. chances: of each, float32 [S], 0 to 1, when it
    was written. loss: nats a word, <end> among them.

    weights: of the steps that write the words, on the image, float32 [L,H,S,P]; blocked: what these may not attend to,
    bool [S,P].
    """

    words: tuple[str, ...]
    chances: np.ndarray
    loss: float
    weights: np.ndarray
    blocked: np.ndarray


def without(spec: MaskSpec, removed: Sequence[int]) -> MaskSpec:
    """The spec with these patches removed: no token may attend to them."""
    return replace(spec, drawn=tuple(Stroke("block", 0, patch, MOST_POSITIONS, patch) for patch in removed))


def write(model: CaptionerModel, picture: np.ndarray, prompt: str, spec: MaskSpec) -> CaptionView:
    """The caption that the model writes, always the likeliest word, of a picture uint8 [SIDE,SIDE,3]."""
    words: list[str] = []
    while len(words) < LONGEST - 1:
        likeliest = int(model.run(encode(picture[None], prompt, words), spec).next_token().argmax())
        if likeliest == END:
            break
        words.append(model.label(likeliest))
    return read(model, picture, prompt, tuple(words), spec)


@torch.inference_mode()
def read(
    model: CaptionerModel, picture: np.ndarray, prompt: str, words: tuple[str, ...], spec: MaskSpec
) -> CaptionView:
    """The same of a given caption. Raises KeyError for words that the model does not know."""
    trace = model.run(encode(picture[None], prompt, words), spec)
    chances = trace.logits[0, PATCHES:].softmax(-1)  # [S+1,V]
    given = chances[range(len(words) + 1), [*(ID_OF[word] for word in words), END]]
    blocked = ~trace.allowed(0)[PATCHES:-1, :PATCHES].numpy()
    loss = -float(given.clamp(min=1e-30).log().mean())
    weights = np.asarray(torch.stack([some for _, _, some in trace.blocks()])[:, :, PATCHES:-1, :PATCHES])
    return CaptionView(words, given[:-1].numpy(), loss, weights, blocked)


@dataclass(frozen=True, eq=False)
class LocatedHeads:
    """Of a scene with its own caption. loss: nats a word. shares: each head's localization, 0 to 1, [L,H], the mean
    over the words that say a size, a colour or a shape; even: that of attention spread evenly over the image.

    by_area: the same where a patch counts with the share of its area that is inside; most: what that is at the most,
    of a head that attends to the patch which lies most inside.
    """

    loss: float
    shares: np.ndarray
    even: float
    by_area: np.ndarray
    most: float


def locate(model: CaptionerModel, scene: Scene, prompt: str, spec: MaskSpec) -> LocatedHeads:
    """A patch counts as inside where it touches the box: what in a patch gets its attention is not known."""
    words = caption(scene, prompt)
    found = read(model, render([scene])[0], prompt, tuple(text for text, _ in words), spec)
    asked = [number for number, (text, about) in enumerate(words) if about is not None and text != "a"]
    boxes = [scene.shapes[about].box for _, about in (words[one] for one in asked) if about is not None]
    area = np.array([[one.overlap(box) for one in captioner.TOKENS] for box in boxes])  # [asked,P]
    weights = found.weights[:, :, asked]
    image = np.maximum(weights.sum(-1), 1e-9)
    touching, by_area = (((weights * inside).sum(-1) / image).mean(-1) for inside in (area > 0, area))
    return LocatedHeads(found.loss, touching, float((area > 0).mean()), by_area, float(area.max(-1).mean()))


def mean_localization(model: CaptionerModel, count: int) -> LocatedHeads:
    """The means over held-out scenes, under the model's own mask."""
    found = [locate(model, scene, prompt, model.standard) for scene, prompt in held_out_scenes(count)]
    return LocatedHeads(*(np.mean([getattr(one, each.name) for one in found], axis=0) for each in fields(LocatedHeads)))


def batch(
    some: Sequence[tuple[Scene, str]], jitter: np.random.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Scenes, each with a prompt -> ids and targets [B,CONTEXT], patches [B,CONTEXT,N]; only captions have targets."""
    ids, targets = torch.full((len(some), CONTEXT), END), torch.full((len(some), CONTEXT), IGNORED)
    ids[:, :PATCHES] = captioner.IMAGE
    for row, (scene, prompt) in enumerate(some):
        words = [ID_OF[text] for text, _ in caption(scene, prompt)]
        ids[row, PATCHES : PATCHES + 1 + len(words)] = torch.tensor([ID_OF[prompt], *words])
        targets[row, PATCHES : PATCHES + 1 + len(words)] = torch.tensor([*words, END])
    patches = captioner.to_patches(render([scene for scene, _ in some], jitter))
    return ids, targets, F.pad(patches, (0, 0, 0, CONTEXT - PATCHES))


def losses_of(
    network: CaptionNetwork, spec: MaskSpec, ids: Tensor, targets: Tensor, patches: Tensor
) -> tuple[Tensor, Tensor]:
    """Nats of every target [B,S], 0 where there is none, and whether each row's every word is held likeliest [B]: then
    the model, writing by itself, writes the whole caption."""
    allowed = MaskContext(torch.ones(1, CONTEXT, dtype=torch.bool), CONTEXT, 1).allowed(spec)  # [1,1,T,T]
    states, _ = network(network.inputs(ids, patches), torch.arange(CONTEXT), allowed)
    logits, wanted = network.logits(states[:, PATCHES:]), targets[:, PATCHES:]
    losses = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none", ignore_index=IGNORED)
    right = (logits.argmax(-1) == wanted) | (wanted == IGNORED)
    return losses, right.all(-1).float()


@torch.inference_mode()
def under_masks(model: CaptionerModel, count: int, *, unseen: bool = False) -> np.ndarray:
    """Over so many held-out scenes: nats a word and the share of exact captions, 0 to 1, under each mask of MASKS,
    float32 [masks,2]. unseen: as held_out_scenes'."""
    part = batch(held_out_scenes(count, unseen=unseen))
    found = [losses_of(model.network, spec, *part) for spec in MASKS.values()]
    words = (part[1] != IGNORED).sum()
    return np.array([(float(losses.sum() / words), float(right.mean())) for losses, right in found], np.float32)


def folded_head(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int) -> HeadView:
    """A head with the image tokens as one: what they attend to on average, and what they all are attended to."""
    view = head_view(trace, row, masks, layer, head)

    def merged(values: np.ndarray, rows: np.ufunc, columns: np.ufunc) -> np.ndarray:
        above = np.concatenate([rows.reduce(values[:PATCHES], keepdims=True), values[PATCHES:]])
        left = columns.reduce(above[:, :PATCHES], axis=1, keepdims=True)
        return np.concatenate([left, above[:, PATCHES:]], axis=1)

    weights = merged(view.weights, np.add, np.add)
    weights[0] /= PATCHES
    blocked = {name: merged(mask, np.logical_and, np.logical_and) for name, mask in view.blocked.items()}
    labels = [f"image ×{PATCHES}", *view.queries[PATCHES:]]
    scaled = merged(view.scaled, np.maximum, np.maximum)
    return replace(view, weights=weights, scaled=scaled, blocked=blocked, queries=labels, keys=labels)
