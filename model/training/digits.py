"""The digits model: a small Transformer that generates 8×8 digits pixel by pixel.

    python -m model.training digits [--minutes 20] [--out FOLDER]     train, then measure
    python -m model.training.digits [FOLDER]                          print the numbers on its card

Training ends after a number of steps, or on a slow machine when its minutes are over. The weights that ship are a
running mean over the steps, from the evaluation with the lowest validation loss.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from model.gpt2 import save_transformer
from model.pixels import digits
from model.pixels.digits import CLASSES, SAMPLING, TITLES, Digits, DigitsModel, real_digits, recogniser, write
from model.sampling import Sampling
from model.training.story import LossCurve
from model.transformer import Transformer, config_of
from model.why_causal.live_training import Rates, new_optimizers, new_transformer, rate_at, token_losses, update

SIZES = (100, 1000)  # digits generated, equally many per class


def report(folder: Path) -> str:
    """Return the measured numbers of the checkpoint in folder, as on the card."""
    torch.set_num_threads(1)
    model, data = digits.load(folder), real_digits()
    found = {
        "parameters": float(model.parameters),
        "test_nats_a_pixel": mean_loss(model.network, data.test),
        "test_nats_a_pixel_without_causal": mean_loss(model.network, data.test, causal=False),
        "train_nats_a_pixel": mean_loss(model.network, data.train),
    }
    for kind in TITLES:
        found[f"{kind}_accuracy_on_real"] = recogniser(kind).accuracy
    for how in (SAMPLING, Sampling()):
        for size in SIZES:
            written = sample(model, size, how)
            for kind in TITLES:
                found[f"{kind}_recognises_{size}_at_{how.temperature}"] = recogniser(kind).rate(written)
            if size == SIZES[-1]:
                copies = nearest(written.levels, data.train.levels)
                found[f"copies_of_{size}_at_{how.temperature}"] = float((copies == 0).mean())
                found[f"nearest_of_{size}_at_{how.temperature}"] = float(copies.mean())
    found["nearest_of_real_test"] = float(nearest(data.test.levels, data.train.levels).mean())
    return "\n".join(f"{name}: {value:.4f}" for name, value in found.items())


def sample(model: DigitsModel, size: int, how: Sampling) -> Digits:
    """Generate `size` digits, equally many per class, in the order 0 to 9 repeated."""
    classes = np.tile(np.arange(CLASSES), size // CLASSES)
    return Digits(write(model, classes, how), classes)


@torch.inference_mode()
def mean_loss(model: Transformer, some: Digits, *, causal: bool = True) -> float:
    """Return the nats per pixel on real digits, with or without the causal mask."""
    ids = digits.to_ids(some.levels, some.classes)
    return float(token_losses(model, ids[:, :-1], ids[:, 1:], causal).mean())


def nearest(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return each image's [N,64] distance to the nearest of the others [M,64]: grey levels, summed over pixels, [N]."""
    return np.array([np.abs(others.astype(int) - one.astype(int)).sum(1).min() for one in some])


EVALUATE_EVERY = 50  # steps


@dataclass(frozen=True, kw_only=True)
class DigitsRecipe(Rates):
    """Everything that determines the weights, except the machine."""

    minutes: float = 20.0  # upper limit
    steps: int = 650  # upper limit: with more steps the model memorizes its digits
    layers: int = 4
    heads: int = 4
    width: int = 96
    rows: int = 64
    matrix_rate: float = 3e-3
    other_rate: float = 3e-3
    matrix_decay: float = 0.2
    warmup: float = 0.03
    shifted: float = 0.5  # share of the rows that are shifted by a pixel
    misread: float = 0.1  # share of the input pixels changed by one level; targets stay true
    mean_over: float = 0.99  # decay of the running mean per step
    seed: int = 11


def train(out: Path, recipe: DigitsRecipe) -> None:
    """Train on scikit-learn's digits and write the checkpoint, its loss curve and its numbers to out."""
    torch.set_num_threads(1)  # tensors this small gain nothing from more threads
    torch.manual_seed(recipe.seed)
    data = real_digits()
    if recipe.rows > len(data.train.classes):
        raise ValueError(
            f"expected at most {len(data.train.classes):,} rows, all digits to train on, got {recipe.rows}"
        )
    model = new_transformer(config_of(recipe, vocabulary=digits.VOCABULARY, context=digits.POSITIONS))
    running = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.mean_over))
    mean = cast(Transformer, running.module)
    optimizers = new_optimizers(model, recipe)
    best, began, step = float("inf"), time.monotonic(), 0
    curve = LossCurve(out, ["step", "minutes", "training_nats_a_pixel", "validation_nats_a_pixel"])
    for ids, targets in batches(data.train, recipe):
        elapsed = (time.monotonic() - began) / 60
        done = min(max(elapsed / recipe.minutes, step / recipe.steps), 1)
        loss = token_losses(model, ids, targets, causal=True).mean()
        loss.backward()
        update(model, optimizers, rate_at(done, recipe.warmup))
        running.update_parameters(model)
        step += 1
        last = step >= recipe.steps or elapsed >= recipe.minutes
        if step % EVALUATE_EVERY == 0 or last:
            nats = mean_loss(mean, data.validation)
            curve.add(step, f"{elapsed:.2f}", f"{loss.item():.4f}", f"{nats:.4f}")
            if nats < best:
                best = nats
                save_transformer(mean, out, torch.float16)
        if last:
            break
    print(f"{step} steps of {recipe.rows} digits; best validation loss {best:.4f}; recipe {asdict(recipe)}")
    print(report(out))


def batches(some: Digits, recipe: DigitsRecipe) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs, ids [rows, 64] (class, then all pixels but the last), and targets, the pixels, endlessly.

    Some digits are shifted by a pixel, and some input pixels are changed to a neighbouring level: with only 1,444
    digits the model would otherwise memorize them.
    """
    generator = np.random.default_rng(recipe.seed)
    while True:
        order = generator.permutation(len(some.classes))
        for begin in range(0, len(order) - recipe.rows + 1, recipe.rows):
            rows = order[begin : begin + recipe.rows]
            levels = np.stack([_moved(levels, recipe, generator) for levels in some.levels[rows]])
            nudge = generator.choice([-1, 1], levels.shape) * (generator.random(levels.shape) < recipe.misread)
            read = np.clip(levels.astype(int) + nudge, 0, digits.LEVELS - 1)
            ids = digits.to_ids(read, some.classes[rows])[:, :-1]
            yield ids, digits.to_ids(levels, some.classes[rows])[:, 1:]


def _moved(levels: np.ndarray, recipe: DigitsRecipe, generator: np.random.Generator) -> np.ndarray:
    """Shift the digit [64] by a pixel, to a side where almost no ink is lost, or return it as it is."""
    if generator.random() >= recipe.shifted:
        return levels
    picture = levels.reshape(digits.SIDE, digits.SIDE)
    axis, step = int(generator.integers(2)), int(generator.choice([-1, 1]))
    leaving = picture.take(-1 if step == 1 else 0, axis)
    if leaving.max() > 1:
        return levels
    moved = np.roll(picture, step, axis)
    moved.swapaxes(0, axis)[0 if step == 1 else -1] = 0
    return moved.ravel()


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else digits.FOLDER))
