"""The story model: a small GPT-2 that read the children's books of one shelf.

    python -m model.training story --text DIR [--minutes 85] [--out FOLDER]

Learning follows the clock, so that a busy machine trains less instead of longer.
"""

import csv
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from model import masks
from model.gpt2 import save_transformer
from model.text import FIRST_ID, START_ID
from model.training.corpus import Books, Rows, read_books
from model.training.evaluate import head_scores, held_out_bits
from model.training.tokenizer import train_tokenizer
from model.transformer import Transformer, TransformerConfig
from model.why_causal.optimization import Rates, new_optimizers, new_transformer, rate_at, update


@dataclass(frozen=True, kw_only=True)
class StoryRecipe(Rates):
    """Everything that made the weights, but the text and the machine."""

    minutes: float = 85.0
    vocabulary: int = 4096
    context: int = 256
    layers: int = 6
    heads: int = 6
    width: int = 192
    rows: int = 16
    repeated: float = 0.25
    seed: int = 11

    @property
    def config(self) -> TransformerConfig:
        """The model's sizes."""
        return TransformerConfig(
            vocabulary=self.vocabulary, context=self.context, layers=self.layers, heads=self.heads, width=self.width
        )


def train(folder: Path, out: Path, recipe: StoryRecipe) -> None:
    """Train on the books in folder and write a checkpoint, its tokenizer, its loss curve and its numbers to out."""
    books = read_books(folder)
    tokenizer = train_tokenizer(books.train, recipe.vocabulary)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    torch.manual_seed(recipe.seed)
    model = new_transformer(recipe.config)
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


def training_rows(books: Books, tokenizer: Tokenizer, recipe: StoryRecipe) -> Rows:
    """The books' tokens, and where their paragraphs begin."""
    paragraphs = [paragraph + "\n\n" for book in books.train for paragraph in book.rstrip().split("\n\n")]
    encoded = [torch.tensor(e.ids) for e in tokenizer.encode_batch(paragraphs)]
    begins = torch.tensor([0] + [len(ids) for ids in encoded[:-1]]).cumsum(0)
    generator = torch.Generator().manual_seed(recipe.seed)
    ids = range(FIRST_ID, recipe.vocabulary)
    return Rows(torch.cat(encoded), begins, START_ID, ids, recipe.context, generator, recipe.repeated)


def mean_loss(model: Transformer, ids: Tensor, targets: Tensor) -> Tensor:
    """Nats a token over the targets that are not -100, computed in bfloat16."""
    length = ids.shape[1]
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = model(ids, torch.arange(length), masks.causal(length, length)[None, None])
        logits = model.logits(states)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


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
