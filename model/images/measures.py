"""What a captioner is worth on scenes whose captions are known: losses, exact captions, and where its heads look."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from model.images.captioner import (
    CONTEXT,
    END,
    ID_OF,
    IMAGE,
    MASKS,
    PATCHES,
    CaptionerModel,
    CaptionNetwork,
    encode,
    image_tokens,
    image_weights,
    to_patches,
)
from model.images.scenes import PROMPTS, Scene, Word, caption, held_out_scenes, render
from model.masks import MaskContext, MaskSpec

IGNORED = -100
ROWS = 128  # run together


def allowed_under(spec: MaskSpec) -> Tensor | None:
    """The mask of a whole row, [1,1,T,T]."""
    return MaskContext(torch.ones(1, CONTEXT, dtype=torch.bool), CONTEXT, 1).allowed(spec)


def batch(
    some: Sequence[Scene], prompts: Sequence[str], jitter: np.random.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """ids and targets [B,CONTEXT], patches [B,CONTEXT,N]: each scene with its caption; only that has targets."""
    ids, targets = torch.full((len(some), CONTEXT), END), torch.full((len(some), CONTEXT), IGNORED)
    ids[:, :PATCHES] = IMAGE
    for row, (scene, prompt) in enumerate(zip(some, prompts, strict=True)):
        words = [ID_OF[word.text] for word in caption(scene, prompt)]
        ids[row, PATCHES : PATCHES + 1 + len(words)] = torch.tensor([ID_OF[prompt], *words])
        targets[row, PATCHES : PATCHES + 1 + len(words)] = torch.tensor([*words, END])
    return ids, targets, F.pad(to_patches(render(some, jitter)), (0, 0, 0, CONTEXT - PATCHES))


def losses_of(
    model: CaptionNetwork, allowed: Tensor | None, ids: Tensor, targets: Tensor, patches: Tensor
) -> tuple[Tensor, Tensor]:
    """Nats of every target [B,S], 0 where there is none, and whether each row's every word is held likeliest [B]: then
    the model, writing by itself, writes the whole caption."""
    states, _ = model(model.inputs(ids, patches), torch.arange(CONTEXT), allowed)
    logits, wanted = model.logits(states[:, PATCHES:]), targets[:, PATCHES:]
    losses = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none", ignore_index=IGNORED)
    right = (logits.argmax(-1) == wanted) | (wanted == IGNORED)
    return losses, right.all(-1).float()


@torch.inference_mode()
def under_masks(
    model: CaptionerModel, count: int, names: tuple[str, ...] = tuple(MASKS), *, unseen: bool = False
) -> np.ndarray:
    """Over so many held-out scenes: the loss in nats a word and the share of exact captions, 0 to 1, under each of
    these masks, float32 [masks, 2]. unseen: as held_out_scenes'."""
    some, totals, words = held_out_scenes(count, unseen=unseen), np.zeros((len(names), 2)), 0
    for begin in range(0, count, ROWS):
        scenes = some[begin : begin + ROWS]
        part = batch(scenes, [prompt_of(begin + row) for row in range(len(scenes))])
        words += int((part[1] != IGNORED).sum())
        for row, name in enumerate(names):
            losses, right = losses_of(model.network, allowed_under(MASKS[name]), *part)
            totals[row] += float(losses.sum()), float(right.sum())
    return (totals / (words, count)).astype(np.float32)


def prompt_of(number: int) -> str:
    """Of the held-out scene of this number."""
    return tuple(PROMPTS)[number % len(PROMPTS)]


def inside(scene: Scene, words: Sequence[Word]) -> np.ndarray:
    """Which patches touch the box of the shape that each word is about, bool [S,P]; none for a word about none."""
    patches = image_tokens()
    boxes = [None if word.about is None else scene.shapes[word.about].box for word in words]
    return np.array([[box is not None and one.overlap(box) > 0 for one in patches] for box in boxes])


def localization(weights: np.ndarray, places: np.ndarray, words: Sequence[Word]) -> np.ndarray:
    """Each head's share of image attention inside the true bounding box, 0 to 1: [L,H].

    The mean over the words that say a size, a colour or a shape. weights: of the steps that write the words, on the
    image, [L,H,S,P]. places: `inside`.
    """
    asked = np.array([word.about is not None and word.text != "a" for word in words])
    within = (weights * places)[:, :, asked].sum(-1) / np.maximum(weights[:, :, asked].sum(-1), 1e-9)
    return np.asarray(within.mean(-1))


def chance(places: np.ndarray, words: Sequence[Word]) -> float:
    """The same of attention that is spread evenly over the image."""
    uniform = np.ones((1, 1, *places.shape))
    return float(localization(uniform, places, words)[0, 0])


@torch.inference_mode()
def mean_localization(model: CaptionerModel, count: int) -> tuple[np.ndarray, float]:
    """Each head's localization [L,H] over held-out scenes, under the model's own mask; and the chance level."""
    total, even = np.zeros((model.num_layers, model.num_heads)), 0.0
    for number, scene in enumerate(held_out_scenes(count)):
        words = caption(scene, prompt_of(number))
        places, texts = inside(scene, words), [word.text for word in words]
        trace = model.run(encode(render([scene]), prompt_of(number), texts))
        total += localization(image_weights(trace), places, words)
        even += chance(places, words)
    return total / count, even / count
