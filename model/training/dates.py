"""The dates model: an encoder-decoder that writes dates as ISO 8601.

    python -m model.training dates [--minutes 14] [--out FOLDER]
    python -m model.training.dates [FOLDER]                        print the numbers on its card

Every row is made on the spot by model/cross_attention/written_dates.py, of days that are not held out. Learning
follows the clock.
"""

import csv
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from model.cross_attention import dates
from model.cross_attention.date_measures import Pairs, exact_match
from model.cross_attention.dates import END, FOLDER, PAD, START, DatesModel
from model.cross_attention.written_dates import examples, held_out_days, training_days
from model.masks import MaskSpec
from model.optimization import Rates, new_optimizers, rate_at, update
from model.seq2seq import EncoderDecoder, EncoderDecoderConfig

EVERY = 200  # steps between two lines of the loss curve
POOL = 8  # batches that are drawn together


@dataclass(frozen=True, kw_only=True)
class Recipe(Rates):
    """Everything that made the weights, but the machine."""

    minutes: float = 14.0
    context: int = 64
    encoder_layers: int = 2
    decoder_layers: int = 2
    heads: int = 4
    width: int = 64
    rows: int = 128
    warmup: float = 0.03
    seed: int = 11


def train(out: Path, recipe: Recipe) -> None:
    """Train, and write a checkpoint, its tokenizer and its loss curve to out."""
    torch.set_num_threads(1)  # on tensors this small more threads only wait for each other
    torch.manual_seed(recipe.seed)
    tokenizer, batches = dates.new_tokenizer(), training_rows(recipe)
    model = new_model(recipe, tokenizer.get_vocab_size())
    optimizers = new_optimizers(model, recipe)
    held_out = examples(held_out_days(), 500, random.Random("loss curve"))
    out.mkdir(parents=True, exist_ok=True)
    curve = (out / "loss.csv").open("w", newline="")
    lines = csv.writer(curve)
    lines.writerow(["step", "minutes", "training_loss", "held_out_exact"])
    began, step = time.monotonic(), 0
    while (elapsed := (time.monotonic() - began) / 60) < recipe.minutes:
        source, target = rows_of(next(batches), tokenizer)
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        loss.backward()
        update(model, optimizers, rate_at(elapsed / recipe.minutes, recipe.warmup))
        step += 1
        if step % EVERY == 0:
            exact = exact_match(DatesModel("dates", model, tokenizer), held_out)
            row = [step, f"{elapsed:.2f}", f"{loss.item():.5f}", f"{exact:.4f}"]
            lines.writerow(row)
            curve.flush()
            print(*row, flush=True)
            dates.save(model, out)
    curve.close()
    dates.save(model, out)
    print(f"{step} steps, {step * recipe.rows:,} rows; recipe {asdict(recipe)}")


def new_model(recipe: Recipe, vocabulary: int) -> EncoderDecoder:
    """Small random weights, smaller where they write into the stream."""
    config = EncoderDecoderConfig(
        vocabulary=vocabulary,
        context=recipe.context,
        encoder_layers=recipe.encoder_layers,
        decoder_layers=recipe.decoder_layers,
        heads=recipe.heads,
        width=recipe.width,
    )
    model = EncoderDecoder(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
        elif "embedding" in name and "un" not in name:
            nn.init.normal_(weight, std=0.7)  # as large as the sines and cosines that are added
        elif weight.ndim == 2:
            into_stream = name.endswith(("attention.output.weight", "mlp_out.weight"))
            std = weight.shape[1] ** -0.5
            nn.init.normal_(weight, std=std / math.sqrt(2 * recipe.decoder_layers) if into_stream else std)
    return model


def training_rows(recipe: Recipe) -> Iterator[Pairs]:
    """Batches of (source, target) without end, each of sources of about one length, so that little is padding."""
    draw, days = random.Random(recipe.seed), training_days()
    while True:
        pool = sorted(examples(days, POOL * recipe.rows, draw), key=lambda row: len(row[0]))
        batches = [pool[begin : begin + recipe.rows] for begin in range(0, len(pool), recipe.rows)]
        draw.shuffle(batches)
        yield from batches


def rows_of(some: Pairs, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Source ids [B,S] and target ids [B,T], the target between its start and its end token, padded on the right."""
    sources = [encoded.ids for encoded in tokenizer.encode_batch([source for source, _ in some])]
    targets = [[START, *encoded.ids, END] for encoded in tokenizer.encode_batch([target for _, target in some])]
    return _padded(sources), _padded(targets)


def report(folder: Path, count: int = 10_000) -> str:
    """The measured numbers of the checkpoint in folder, as the card has them."""
    model = dates.load(folder)
    some = examples(held_out_days(), count, random.Random("card"))
    lines = [f"size: {sum(path.stat().st_size for path in folder.iterdir()) / 2**20:.2f} MiB in all"]
    for name, spec in (
        ("standard masks", MaskSpec()),
        ("without the padding mask", MaskSpec(padding=False)),
        ("without the causal mask", MaskSpec(causal=False)),
    ):
        lines.append(f"exact on {count:,} held-out strings, {name}: {exact_match(model, some, spec):.2%}")
    return "\n".join(lines)


def _padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
