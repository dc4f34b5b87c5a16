"""The digits model: 8×8 images of digits as tokens, and the small Transformer that generates them pixel by pixel.

An image is 65 tokens: its class, then its 64 pixels, row by row from the top left (raster order). A pixel is one of 8
grey levels, 0 = paper to 7 = ink. Position 1 + p has pixel p; it is predicted at the position before. Sizes: B images,
P pixels, T = 1 + P positions, L layers, H heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model import masks, sampling
from model.base import CHECKPOINTS, files_key
from model.blocks import KeysValues
from model.decoder import DecoderModel
from model.errors import CheckpointError
from model.gpt2 import load_transformer
from model.masks import MaskSpec
from model.pixels.view import PixelView, class_name
from model.sampling import Sampling
from model.text import TokenBatch
from model.trace import Trace
from model.transformer import Transformer

CLASSES, LEVELS, SIDE = 10, 8, 8
PIXELS = SIDE * SIDE
POSITIONS = 1 + PIXELS
VOCABULARY = CLASSES + LEVELS  # ids 0 to 9 are the classes, 10 to 17 the grey levels
INK = 16  # the darkest value of scikit-learn's digits, whose pixels go from 0 to 16
FOLDER = CHECKPOINTS / "digits"


class DigitsModel(DecoderModel):
    """The digits model as a Model."""

    def __init__(self, network: Transformer, *, key: str | None = None) -> None:
        super().__init__("digits", network, None, key=key)

    def encode(self, texts: list[str], pad_side: str = "right", targets: list[str] | None = None) -> TokenBatch:
        raise ValueError("expected a picture, got a text, which the digits model cannot read")  # not shown

    def label(self, token: int) -> str:
        return class_name(token) if token < CLASSES else str(token - CLASSES)


def load(folder: Path = FOLDER) -> DigitsModel:
    """Load the model in folder. Raises CheckpointError if its files cannot be used, or are another model's."""
    network = load_transformer(folder)
    config = network.config
    if (config.vocabulary, config.context) != (VOCABULARY, POSITIONS):
        words = N_("{folder}: expected a vocabulary of {entries} and a context of {context}, found {found} and {had}")
        sizes = {"entries": VOCABULARY, "context": POSITIONS, "found": config.vocabulary, "had": config.context}
        raise CheckpointError(msg(words, folder=folder, **sizes))
    return DigitsModel(network, key=files_key("digits", folder))


def to_levels(values: np.ndarray) -> np.ndarray:
    """Round pixels from 0 to 16, scikit-learn's scale, to the nearest of 8 grey levels: uint8 of the same shape."""
    return ((np.asarray(values) * (LEVELS - 1) * 2 + INK) // (2 * INK)).astype(np.uint8)


def to_values(levels: np.ndarray) -> np.ndarray:
    """Convert grey levels 0 to 7 to scikit-learn's scale: float64 from 0 to 16."""
    return np.asarray(levels) * (INK / (LEVELS - 1))


def to_ids(levels: np.ndarray, classes: Sequence[int] | np.ndarray) -> Tensor:
    """Convert levels [B,P'] 0 to 7, the first P' ≤ 64 pixels, and classes [B] 0 to 9 to ids int64 [B,1+P']."""
    levels, named = np.asarray(levels), np.asarray(classes)
    if levels.ndim != 2 or levels.shape[1] > PIXELS or len(levels) != len(named):
        shapes = f"{levels.shape} and {named.shape}"
        raise ValueError(f"expected levels [B, up to {PIXELS}] and B classes, got {shapes}")  # not shown
    for name, some, count in (("levels", levels, LEVELS), ("classes", named, CLASSES)):
        if some.size and (some.min() < 0 or some.max() >= count):
            raise ValueError(f"expected {name} from 0 to {count - 1}, got {some.min()} to {some.max()}")
    return torch.from_numpy(np.concatenate([named[:, None], levels.astype(np.int64) + CLASSES], axis=1)).long()


def encode(levels: np.ndarray, classes: Sequence[int] | np.ndarray) -> TokenBatch:
    """Encode images, one row each, without padding; pieces are "class 3" and "r0 c5: 2" (row, column: level)."""
    ids = to_ids(levels, classes)
    pieces = tuple(
        (class_name(first), *(f"{name_of(at)}: {token - CLASSES}" for at, token in enumerate(rest)))
        for first, *rest in ids.tolist()
    )
    return TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), pieces)


def name_of(pixel: int) -> str:
    """Return a pixel's row and column, both from 0: "r0 c5"."""
    return f"r{pixel // SIDE} c{pixel % SIDE}"


def attention(trace: Trace, query: int, masks: MaskSpec | None = None, row: int = 0) -> Tensor:
    """Return the weights of the query at a position, in every head: [L,H,65], blocked cells exactly 0.

    Under the run's masks, or under others with the same queries and keys.
    """
    return torch.stack([weights[:, query] for _, _, weights in trace.blocks(row, masks)])


def blocked(trace: Trace, query: int, masks: MaskSpec | None = None, row: int = 0) -> dict[str, np.ndarray]:
    """Return the cells blocked for the query at a position, in every head: by mask bool [L,H,65]."""
    found: dict[str, np.ndarray] = {}
    every = trace.num_layers, trace.num_heads
    for layer, head in np.ndindex(every):
        for name, mask in trace.blocked_by(layer, row, masks, head=head).items():
            found.setdefault(name, np.zeros((*every, POSITIONS), bool))[layer, head] = mask[query].numpy()
    return found


def pixel_view(trace: Trace, row: int, masks: MaskSpec, query: int, pixel: int) -> PixelView:
    """Return the view of one pixel in a run."""
    digit, *levels = trace.batch.ids[row].tolist()
    return PixelView(
        (np.array(levels) - CLASSES).astype(np.uint8),
        digit,
        attention(trace, query, masks, row).numpy(),
        blocked(trace, query, masks, row),
        pixel,
        query,
        attention(trace, pixel, masks, row).numpy(),
        level_probabilities(trace, row).numpy()[pixel],
        trace.losses(row).numpy()[1:],
    )


def level_probabilities(trace: Trace, row: int = 0) -> Tensor:
    """Return the model's probability of each grey level of each pixel before it is generated: [64,8], 0 to 1.

    Pixel p is predicted at the position before it. The rest to 1 is on class tokens, which cannot follow.
    """
    with torch.inference_mode():
        return trace.readout(trace.states[row, :PIXELS]).float().softmax(-1)[:, CLASSES:]


LayerCaches = list[KeysValues]  # each layer's keys and values
SAMPLING = Sampling(temperature=0.8)  # for the numbers on the model's card


def write(
    model: DigitsModel, classes: Sequence[int] | np.ndarray, how: Sampling = SAMPLING, given: np.ndarray | None = None
) -> np.ndarray:
    """Generate digits of these classes [N], N ≥ 1: uint8 [N,64]. given: levels [N,P] that every digit begins with.

    Under the causal mask a pixel needs no pixel after it, so they are generated one by one, all digits at once. Digit n
    draws the same random numbers whatever the others are.
    """
    ids = to_ids(np.zeros((len(classes), 0)) if given is None else given, classes)
    each = [np.random.default_rng((how.seed, row)).random(PIXELS) for row in range(len(ids))]
    chances = torch.from_numpy(np.stack(each)).float()
    unread, cache = ids, None
    for pixel in range(ids.shape[1] - 1, PIXELS):
        logits, cache = run_with_cache(model, unread, cache)
        unread = sampling.pick(sampling.distribution(logits, how), chances[:, pixel])[:, None] + CLASSES
        ids = torch.cat([ids, unread], dim=1)
    return (ids[:, 1:] - CLASSES).numpy().astype(np.uint8)


@torch.inference_mode()
def run_with_cache(model: DigitsModel, ids: Tensor, cache: LayerCaches | None = None) -> tuple[Tensor, LayerCaches]:
    """Run ids [N,T] after a cache: return the logits [N,8] of the next pixel's grey level, and the new cache.

    Each layer's keys and values can be cached because earlier tokens do not change under the causal mask. Class tokens,
    which never follow, are left out of the logits.
    """
    before = cache[0][0].shape[2] if cache else 0
    length = before + ids.shape[1]
    allowed = masks.causal(ids.shape[1], length)[None, None] if ids.shape[1] > 1 else None
    states, qkvs = model.network(ids, torch.arange(before, length), allowed, cache)
    return model.readout(states[:, -1]).float()[:, CLASSES:], [(k, v) for _, k, v in qkvs]


@torch.inference_mode()
def class_probabilities(model: DigitsModel, given: np.ndarray) -> np.ndarray:
    """Return the probability of each class for the first pixels, levels [P] -> [10], by Bayes' rule with equal priors.

    The probability that the model generates these pixels after each class token, scaled to sum to 1.
    """
    levels = np.repeat(np.asarray(given)[None], CLASSES, axis=0)
    ids = to_ids(levels, range(CLASSES))
    length = ids.shape[1]
    states, _ = model.network(ids, torch.arange(length), masks.causal(length, length)[None, None])
    chances = model.readout(states[:, :-1]).float().log_softmax(-1)
    total = chances.gather(-1, ids[:, 1:, None])[..., 0].double().sum(-1)
    return total.softmax(0).numpy()


if TYPE_CHECKING:
    from sklearn.base import ClassifierMixin

DIGITS_FILE = "datasets/data/digits.csv.gz"  # in scikit-learn's package: 64 pixels and the class per line
VALIDATION, TEST = 8, 9  # of every ten digits of a class, in scikit-learn's order from 0: not for training
Kind = Literal["svc", "logistic"]
TITLES: dict[Kind, str] = {"svc": N_("support vector classifier"), "logistic": N_("logistic regression")}


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of digits, read-only. levels: uint8 [N,64], 0 to 7; classes: int [N], 0 to 9."""

    levels: np.ndarray
    classes: np.ndarray


@dataclass(frozen=True, eq=False)
class RealDigits:
    """The split of scikit-learn's digits: train for both models, validation to select weights, test only to measure."""

    train: Digits
    validation: Digits
    test: Digits


@cache
def real_digits() -> RealDigits:
    """Return the three parts: 1,444, 177 and 176 digits."""
    package = cast(ModuleSpec, find_spec("sklearn"))
    table = np.loadtxt(Path(str(package.origin)).parent / DIGITS_FILE, delimiter=",")  # as load_digits does
    levels, classes = to_levels(table[:, :-1]), table[:, -1].astype(int)
    part = np.zeros(len(classes), int)
    for digit in np.unique(classes):
        part[classes == digit] = np.arange((classes == digit).sum()) % 10

    def some(which: np.ndarray) -> Digits:
        chosen = Digits(levels[which], classes[which])
        chosen.levels.setflags(write=False)
        chosen.classes.setflags(write=False)
        return chosen

    return RealDigits(some(part < VALIDATION), some(part == VALIDATION), some(part == TEST))


@dataclass(frozen=True, eq=False)
class Recogniser:
    """A trained classifier of images, read-only. accuracy: on real test digits, 0 to 1."""

    kind: Kind
    classifier: "ClassifierMixin"
    accuracy: float

    def read(self, levels: np.ndarray) -> np.ndarray:
        """Classify images [N,64] of grey levels: the classes [N]."""
        return self.classifier.predict(to_values(levels)) if len(levels) else np.zeros(0, int)

    def rate(self, some: Digits) -> float:
        """Return the share of images, 0 to 1, that are classified correctly."""
        return float((self.read(some.levels) == some.classes).mean())


@cache
def recogniser(kind: Kind = "svc") -> Recogniser:
    """Train a classifier on the real training digits, with scikit-learn's own settings (gamma="scale", C=1)."""
    data = real_digits()
    if kind == "svc":
        from sklearn.svm import SVC

        classifier = SVC()
    else:
        from sklearn.linear_model import LogisticRegression

        classifier = LogisticRegression(max_iter=5000)
    classifier.fit(to_values(data.train.levels), data.train.classes)
    untested = Recogniser(kind, classifier, float("nan"))
    return Recogniser(kind, classifier, untested.rate(data.test))
