"""Lesson steps on an image: the scene and words that a captioner reads, and which of its shapes a token attends to."""

from collections.abc import Callable

import numpy as np

from i18n import N_, msg
from model.base import Model
from model.images.captioner import LONGEST, TOKENS, VERSIONS, WORDS, CaptionerModel, encode
from model.images.patches import Box
from model.images.scenes import PROMPTS, render, scene_of
from model.text import TokenBatch

Wrong = Callable[[str, object], ValueError]


def rendered_scene(image: str) -> tuple[np.ndarray, tuple[Box, ...]]:
    """Return a scene's pixels, uint8 [SIDE,SIDE,3], and the boxes of its image tokens."""
    return render([scene_of(image)])[0], tuple(token.box for token in TOKENS)


def encoded(wrong: Wrong, model: Model, name: str, image: str | None, text: str) -> TokenBatch | None:
    """Return the row of a step; None without an image. wrong: Step.wrong. image: as Scene.text. text: a prompt, then
    the words of a caption so far.

    Raises an error made by `wrong` for an image without a model that describes it, or vice versa, and for other words.
    """
    if image is None and not isinstance(model, CaptionerModel):
        return None
    if image is None or not isinstance(model, CaptionerModel):
        words = N_("expected an image, and a model that describes it, one of {models}, got {model}")
        known = ", ".join(f"captioner-{version}" for version in VERSIONS)
        raise wrong("image", msg(words, models=known, model=name))
    prompt, *caption = text.split() or [""]
    if prompt not in PROMPTS or len(caption) >= LONGEST or not {*caption} <= {*WORDS[4:]}:
        words = N_("expected a prompt ({prompts}) and at most {most} words of {words}, got {text}")
        values = {"prompts": ", ".join(PROMPTS), "most": LONGEST - 1, "words": ", ".join(WORDS[4:])}
        raise wrong("text", msg(words, text=text, **values))
    return encode(render([scene_of(image)]), prompt, caption)


def shape_shares(weights: np.ndarray, image: str) -> dict[str, float]:
    """Return the share of the attention on image tokens, [P], that falls on patches of each shape, by its name in a
    caption; "": on patches of none. A patch of several shapes counts for the one that covers most of it.

    Raises ValueError if two shapes have the same name, and if the image gets no attention.
    """
    shapes = scene_of(image).shapes
    names, total = [f"{one.size} {one.colour} {one.shape}" for one in shapes], weights.sum()
    if not names or len({*names}) < len(names) or not total:
        raise ValueError(msg("expected an image of different shapes, and a token that attends to it"))
    area = np.array([[token.overlap(one.box) for one in shapes] for token in TOKENS])
    owner = np.where(area.max(1) > 0, area.argmax(1), len(shapes))
    shares = np.bincount(owner, weights, len(shapes) + 1) / total
    return dict(zip([*names, ""], shares.tolist(), strict=True))
