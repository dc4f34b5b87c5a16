"""The numbers on the digits model's card: loss on real digits, and whether what it writes is recognised."""

from pathlib import Path

import numpy as np
import torch

from model.masks import MaskSpec
from model.pixels import digits
from model.pixels.digit_writing import Draw, write
from model.pixels.digits import CLASSES, DigitsModel
from model.pixels.real_digits import TITLES, Digits, real_digits, recogniser

SIZES = (100, 1000)  # digits written, as many of each class


def measure(folder: Path) -> dict[str, float]:
    """Every number by its name."""
    torch.set_num_threads(1)
    model, data = digits.load(folder), real_digits()
    found = {
        "parameters": float(sum(parameter.numel() for parameter in model.network.parameters())),
        "test_nats_a_pixel": mean_loss(model, data.test, causal=True),
        "test_nats_a_pixel_without_causal": mean_loss(model, data.test, causal=False),
        "train_nats_a_pixel": mean_loss(model, data.train, causal=True),
    }
    for kind in TITLES:
        found[f"{kind}_accuracy_on_real"] = recogniser(kind).accuracy
    for draw in (Draw(), Draw(temperature=1.0)):
        for size in SIZES:
            written = sample(model, size, draw)
            for kind in TITLES:
                found[f"{kind}_recognises_{size}_at_{draw.temperature}"] = recogniser(kind).rate(written)
            if size == SIZES[-1]:
                copies = nearest(written.levels, data.train.levels)
                found[f"copies_of_{size}_at_{draw.temperature}"] = float((copies == 0).mean())
                found[f"nearest_of_{size}_at_{draw.temperature}"] = float(copies.mean())
    found["nearest_of_real_test"] = float(nearest(data.test.levels, data.train.levels).mean())
    return found


def sample(model: DigitsModel, size: int, draw: Draw) -> Digits:
    """As many digits of each class, 0 to 9 again and again."""
    classes = np.tile(np.arange(CLASSES), size // CLASSES)
    return Digits(write(model, classes, draw), classes)


def mean_loss(model: DigitsModel, some: Digits, *, causal: bool) -> float:
    """Nats a pixel over real digits as they are, under the causal mask or without it."""
    losses = []
    for begin in range(0, len(some.classes), 128):
        part = slice(begin, begin + 128)
        batch = digits.encode(some.levels[part], some.classes[part])
        logits = model.run(batch, MaskSpec(causal=causal)).logits[:, :-1]
        losses.append(
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="none")
        )
    return float(torch.cat(losses).mean())


def nearest(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How far each picture [N,64] is from the nearest of the others [M,64]: grey levels, summed over pixels, [N]."""
    return np.array([np.abs(others.astype(int) - one.astype(int)).sum(1).min() for one in some])


def report(folder: Path) -> str:
    """The measured numbers, a line each."""
    return "\n".join(f"{name}: {value:.4f}" for name, value in measure(folder).items())
