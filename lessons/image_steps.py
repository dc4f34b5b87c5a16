"""Steps on an image: the scene and the words that a captioner reads, and which of its shapes a token attends to."""

import numpy as np

from i18n import msg
from model.base import Model
from model.images.captioner import LONGEST, TOKENS, VERSIONS, WORDS, CaptionerModel, encode
from model.images.patches import Box
from model.images.scenes import PROMPTS, render, scene_of
from model.text import TokenBatch


def pictured(image: str) -> tuple[np.ndarray, tuple[Box, ...]]:
    """A scene's pixels, uint8 [SIDE,SIDE,3], and the boxes of its image tokens."""
    return render([scene_of(image)])[0], tuple(token.box for token in TOKENS)


def encoded(model: Model, name: str, image: str | None, text: str) -> TokenBatch | None:
    """The row of a step; None of a step without an image. image: of Scene.text. text: a prompt, then the words of a
    caption so far.

    Raises ValueError for an image without a model that describes it, or the other way round, and for other words.
    """
    if image is None and not isinstance(model, CaptionerModel):
        return None
    if image is None or not isinstance(model, CaptionerModel):
        values = {"models": ", ".join(f"captioner-{version}" for version in VERSIONS), "model": name}
        raise ValueError(
            msg("expected an image, and a model that describes it, one of {models}, got {model}", **values)
        )
    words = text.split()
    if not words or words[0] not in PROMPTS or len(words) > LONGEST or not {*words} <= {*WORDS[2:]}:
        told = {"prompts": ", ".join(PROMPTS), "most": LONGEST - 1, "text": text}
        told["words"] = ", ".join(WORDS[2 + len(PROMPTS) :])
        raise ValueError(msg("expected a prompt ({prompts}) and at most {most} words of {words}, got {text}", **told))
    return encode(render([scene_of(image)]), words[0], words[1:])


def shape_shares(weights: np.ndarray, image: str) -> dict[str, float]:
    """What share of the attention that image tokens get, [P], is on patches of each shape, by what a caption calls it;
    "": on those of none. A patch that touches several is the one's that has the most of it.

    Raises ValueError where two shapes are called the same, and where the image gets nothing.
    """
    shapes = scene_of(image).shapes
    names, total = [f"{one.size} {one.colour} {one.shape}" for one in shapes], weights.sum()
    if not names or len({*names}) < len(names) or not total:
        raise ValueError(msg("expected an image of different shapes, and a token that attends to it"))
    area = np.array([[token.overlap(one.box) for one in shapes] for token in TOKENS])
    owner = np.where(area.max(1) > 0, area.argmax(1), len(shapes))
    shares = np.bincount(owner, weights, len(shapes) + 1) / total
    return dict(zip([*names, ""], shares.tolist(), strict=True))
