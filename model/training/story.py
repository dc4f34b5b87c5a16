"""The story model: a small GPT-2 that read the children's books of one shelf.

    python -m model.training story --text DIR [--minutes 85] [--out FOLDER]

Learning follows the clock, so that a busy machine trains less instead of longer.
"""

import csv
import math
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from model import masks
from model.gpt2 import save_transformer
from model.training.corpus import Books, Rows, read_books
from model.training.evaluate import head_scores, held_out_bits
from model.training.tokenizer import FIRST_ID, START_ID, train_tokenizer
from model.transformer import Transformer, TransformerConfig


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that made the weights, but the text and the machine."""

    minutes: float = 85.0
    vocabulary: int = 4096
    context: int = 256
    layers: int = 6
    heads: int = 6
    width: int = 192
    rows: int = 16
    repeated: float = 0.25
    matrix_rate: float = 5e-3  # Muon, for the blocks' matrices
    other_rate: float = 4e-3  # AdamW, for embeddings, norms and biases
    matrix_decay: float = 0.05
    warmup: float = 0.02  # share of the time
    seed: int = 11


def train(folder: Path, out: Path, recipe: Recipe) -> None:
    """Train on the books in folder and write a checkpoint, its tokenizer, its loss curve and its numbers to out."""
    books = read_books(folder)
    tokenizer = train_tokenizer(books.train, recipe.vocabulary)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    torch.manual_seed(recipe.seed)
    model = new_model(recipe)
    rows = training_rows(books, tokenizer, recipe)
    batch_loss = torch.compile(partial(mean_loss, model))
    optimizers = new_optimizers(model, recipe)
    curve = LossCurve(out / "loss.csv")
    began, step = time.monotonic(), 0
    while (elapsed := (time.monotonic() - began) / 60) < recipe.minutes:
        done = elapsed / recipe.minutes
        loss = batch_loss(*rows.batch(recipe.rows))
        loss.backward()
        update(model, optimizers, rate_at(done, recipe.warmup))
        step += 1
        if step % 250 == 0:
            small = [text[:8000] for text in books.held_out]
            bits = held_out_bits(model, tokenizer, START_ID, small)
            induction, previous = head_scores(model, START_ID, FIRST_ID)
            curve.add(step, elapsed, loss.item(), bits, float(induction.max()), float(previous.max()))
            save_transformer(model, out, torch.float16)
    save_transformer(model, out, torch.float16)
    print(f"{step} steps, {step * recipe.rows * recipe.context:,} tokens; recipe {asdict(recipe)}")


def new_model(recipe: Recipe) -> Transformer:
    """GPT-2's initial weights, but for positions: sines and cosines to begin with (Vaswani et al. 2017, section 3.5).

    From there "one position back" is a rotation that a head finds in minutes; from random vectors it takes hours.
    """
    config = TransformerConfig(
        vocabulary=recipe.vocabulary,
        context=recipe.context,
        layers=recipe.layers,
        heads=recipe.heads,
        width=recipe.width,
    )
    model = Transformer(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
        elif weight.ndim == 2:
            into_stream = name.endswith(("attention.output.weight", "mlp_out.weight"))
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * recipe.layers) if into_stream else 0.02)
    model.position_embedding.weight.data.copy_(sinusoids(recipe.context, recipe.width) * 0.02 * math.sqrt(2))
    return model


def sinusoids(positions: int, width: int) -> Tensor:
    """[positions, width]: sines and cosines whose wavelengths run from 2π to 2π·positions/4."""
    wavelengths = torch.logspace(0, math.log10(positions / 4), width // 2)
    angles = torch.arange(positions)[:, None] / wavelengths
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def training_rows(books: Books, tokenizer: Tokenizer, recipe: Recipe) -> Rows:
    """The books' tokens, and where their paragraphs begin."""
    paragraphs = [paragraph + "\n\n" for book in books.train for paragraph in book.rstrip().split("\n\n")]
    encoded = [torch.tensor(e.ids) for e in tokenizer.encode_batch(paragraphs)]
    begins = torch.tensor([0] + [len(ids) for ids in encoded[:-1]]).cumsum(0)
    generator = torch.Generator().manual_seed(recipe.seed)
    ids = range(FIRST_ID, recipe.vocabulary)
    return Rows(torch.cat(encoded), begins, START_ID, ids, recipe.context, generator, recipe.repeated)


def new_optimizers(model: Transformer, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for the rest."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("blocks.")]
    others = [p for n, p in model.named_parameters() if not (p.ndim == 2 and n.startswith("blocks."))]
    return [
        torch.optim.Muon(
            matrices, lr=recipe.matrix_rate, weight_decay=recipe.matrix_decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=recipe.other_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def rate_at(done: float, warmup: float) -> float:
    """The share of the full rate when this share of the training is done: up in a line, then a cosine down to 2 %."""
    if done < warmup:
        return (done + 1e-3) / (warmup + 1e-3)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - warmup) / (1 - warmup)))


def mean_loss(model: Transformer, ids: Tensor, targets: Tensor) -> Tensor:
    """Nats a token over the targets that are not -100, computed in bfloat16."""
    length = ids.shape[1]
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = model(ids, torch.arange(length), masks.causal(length, length)[None, None])
        logits = model.logits(states)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def update(model: Transformer, optimizers: list[torch.optim.Optimizer], rate: float) -> None:
    """One step of every optimizer at this share of its full learning rate."""
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("full_rate", group["lr"])
            group["lr"] = group["full_rate"] * rate
        optimizer.step()
        optimizer.zero_grad()


class LossCurve:
    """loss.csv, a line every 250 steps, and the same on the screen."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("w", newline="") as file:
            csv.writer(file).writerow(
                ["step", "minutes", "training_loss", "held_out_bits_per_character", "best_induction", "best_previous"]
            )

    def add(self, step: int, minutes: float, loss: float, bits: float, induction: float, previous: float) -> None:
        row = [
            step, f"{minutes:.2f}", f"{loss:.4f}", f"{bits:.4f}", f"{induction:.3f}", f"{previous:.3f}",
        ]  # fmt: skip
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(row)
        print(*row, flush=True)
