"""The captioner: three small decoders that describe images of shapes, each trained under another mask of the image.

    python -m model.training captioner [--version prefix] [--out FOLDER]     train one version, or all; then measure
    python -m model.training.captioner [FOLDER]                              print the numbers on its card

Scenes are generated during training, without those held out. The learning rate follows the steps, or a slow machine's
clock.
"""

import random
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import torch

from model.gpt2 import save_transformer
from model.heads.view import head_name
from model.images import captioner
from model.images.captioner import MASKS, VERSIONS, WORDS, CaptionNetwork, batch, losses_of
from model.images.scenes import PROMPTS, Scene, random_scene
from model.training.story import LossCurve
from model.transformer import config_of
from model.why_causal.live_training import Rates, initialised, new_optimizers, rate_at, update

EVERY = 250  # steps between two lines of the loss curve
COUNTS = (1, 2, 2, 3, 3, 3)  # numbers of shapes in training: scenes with more shapes teach more


@dataclass(frozen=True, kw_only=True)
class CaptionerRecipe(Rates):
    """Everything that determines the weights, except the machine."""

    version: str = field(default="all", metadata={"choices": (*VERSIONS, "all")})
    minutes: float = 60.0  # most minutes per version
    steps: int = 6000
    layers: int = 3
    heads: int = 4
    width: int = 96
    mlp_width: int = 320
    rows: int = 64
    matrix_rate: float = 4e-3
    other_rate: float = 3e-3
    seed: int = 11


def train(out: Path, recipe: CaptionerRecipe) -> None:
    """Train, write each version's checkpoint and loss curve to a folder in out, and print their numbers."""
    torch.set_num_threads(1)  # tensors this small gain nothing from more threads
    versions = VERSIONS if recipe.version == "all" else (recipe.version,)
    for version in versions:
        train_version(version, out / version, recipe)
    if recipe.version == "all":
        print(report(out))


def train_version(version: str, out: Path, recipe: CaptionerRecipe) -> None:
    torch.manual_seed(recipe.seed)
    config = config_of(recipe, vocabulary=len(WORDS), context=captioner.CONTEXT)
    model, spec = initialised(CaptionNetwork(config)), MASKS[version]
    optimizers = new_optimizers(model, recipe)
    draw, jitter = random.Random(recipe.seed), np.random.default_rng(recipe.seed)
    scenes = [random_scene(random.Random(number), held_out=True) for number in range(256)]
    held_out = batch(with_prompts(random.Random(0), scenes))
    curve = LossCurve(out, ["step", "minutes", "rate", "training_loss", "held_out_loss", "held_out_exact"])
    losses: list[float] = []
    began = time.monotonic()
    for step in count():
        elapsed = (time.monotonic() - began) / 60
        done = max(elapsed / recipe.minutes, step / recipe.steps)
        if step % EVERY == 0 or done >= 1:
            with torch.inference_mode():
                nats, right = losses_of(model, spec, *held_out)
            recent = sum(losses) / max(len(losses), 1)
            numbers = (rate_at(done, recipe.warmup), recent, float(nats.sum() / (nats > 0).sum()), float(right.mean()))
            curve.add(step, f"{elapsed:.2f}", *(f"{number:.5f}" for number in numbers))
            save_transformer(model, out, torch.float16)
            losses.clear()
        if done >= 1:
            break
        some = [random_scene(draw, held_out=False, count=draw.choice(COUNTS)) for _ in range(recipe.rows)]
        nats, _ = losses_of(model, spec, *batch(with_prompts(draw, some), jitter))
        loss = nats.sum() / (nats.detach() > 0).sum()
        loss.backward()
        losses.append(loss.item())
        update(model, optimizers, rate_at(done, recipe.warmup))
    print(f"{version}: {step} steps of {recipe.rows} scenes; recipe {asdict(recipe)}")


def with_prompts(draw: random.Random, some: list[Scene]) -> list[tuple[Scene, str]]:
    return [(scene, draw.choice(tuple(PROMPTS))) for scene in some]


def report(folder: Path, size: int = 1000) -> str:
    """Return the measured numbers of the checkpoints in folder, as on the card."""
    torch.set_num_threads(1)
    weights = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    lines = [f"size: {weights / 1e6:.2f} MB of weights; {size:,} held-out scenes"]
    for version in VERSIONS:
        model = captioner.load(version, folder)
        lines.append(f"{version}: {model.parameters:,} parameters")
        seen, unseen = captioner.under_masks(model, size), captioner.under_masks(model, size, unseen=True)
        for name, (loss, exact) in zip(MASKS, seen, strict=True):
            own = ", its own mask" * (name == version)
            lines.append(f"{version} under {name}: {loss:.4f} nats a word, {exact:.2%} exact{own}")
        loss, exact = unseen[list(MASKS).index(version)]
        lines.append(f"{version}, unseen pairs: {loss:.4f} nats a word, {exact:.2%} exact")
        found = captioner.mean_localization(model, size)
        best = head_name(*divmod(int(found.shares.argmax()), model.num_heads))
        lines.append(f"{version}, localization: {best} {found.shares.max():.1%}, chance {found.even:.1%}")
        area = found.by_area.ravel()[found.shares.argmax()]
        lines.append(f"{version}, the same by area: {area:.1%} of at most {found.max_by_area:.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else captioner.FOLDER))
