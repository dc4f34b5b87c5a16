"""Two small models that differ in one thing: one is trained with the causal mask, its twin without.

    python -m model.training twins --text DIR [--minutes 90] [--out FOLDER]     train both
    python -m model.training.twins DIR                                          print the numbers on their card

Both start from the same weights and take every step on the same rows. The number of steps is fixed, not the time, so
neither can get ahead of the other: differences at the end come from the mask.
"""

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.gpt2 import save_transformer
from model.heads.view import head_name
from model.text import START_ID, TokenBatch
from model.training import story
from model.training.story import LossCurve, check_enough, read_books, train_tokenizer
from model.transformer import Transformer, config_of
from model.why_causal import twins
from model.why_causal.live_training import new_optimizers, new_transformer, rate_at, token_losses, update
from model.why_causal.twins import FOLDERS

EVERY = 25  # steps between two lines of loss.csv
HELD_OUT_ROWS = 32  # windows of held-out text for each of those lines
WAYS = (True, False)  # with the causal mask, without
COLUMNS = """
    step with_training with_last_token without_training without_last_token
    with_run_with with_run_without without_run_with without_run_without
"""


@dataclass(frozen=True, kw_only=True)
class TwinsRecipe(story.StoryRecipe):
    """Everything that determines the weights, except the text. minutes: a time limit, whatever the steps."""

    minutes: float = 90.0
    steps: int = 3000
    vocabulary: int = 1024
    context: int = 96
    layers: int = 3
    heads: int = 4
    width: int = 128
    rows: int = 16
    repeated: float = 0.0


@dataclass
class Twin:
    """One of the two models in training. totals: its summed losses since the last line: all targets, last ones."""

    model: Transformer
    optimizers: list[torch.optim.Optimizer]
    causal: bool
    totals: tuple[float, float] = (0.0, 0.0)

    def step(self, ids: Tensor, targets: Tensor, rate: float) -> None:
        """Take one step on ids and targets [rows, context], at this share of the full learning rate."""
        losses = token_losses(self.model, ids, targets, self.causal)
        losses.mean().backward()
        update(self.model, self.optimizers, rate)
        both = losses.detach()
        self.totals = (self.totals[0] + float(both.mean()), self.totals[1] + float(both[:, -1].mean()))

    def means(self, steps: int) -> tuple[float, float]:
        """Return the mean losses of the last `steps` steps and reset the sums."""
        total, last = self.totals
        self.totals = (0.0, 0.0)
        return total / steps, last / steps


def train(folder: Path, out: Path, recipe: TwinsRecipe) -> None:
    """Train both on the books in folder and write both checkpoints, their tokenizer and their losses to out."""
    torch.set_num_threads(1)  # so that a second run on the same machine gives the same weights
    books = read_books(folder)
    tokenizer = train_tokenizer(books.train, recipe.vocabulary)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    rows = story.training_rows(books, tokenizer, recipe)
    held_out = held_out_rows(books.held_out, tokenizer, recipe.context, HELD_OUT_ROWS)
    pair = [new_twin(recipe, causal) for causal in WAYS]
    began = time.monotonic()
    curve = LossCurve(out, COLUMNS.split())
    for step in range(1, recipe.steps + 1):
        batch, rate = rows.batch(recipe.rows), rate_at(step / recipe.steps, recipe.warmup)
        for twin in pair:
            twin.step(*batch, rate)
        last = step == recipe.steps or time.monotonic() - began > 60 * recipe.minutes
        if step % EVERY == 0 or last:
            losses = [loss for twin in pair for loss in twin.means((step - 1) % EVERY + 1)]
            with torch.inference_mode():
                every = [(twin.model, causal) for twin in pair for causal in WAYS]
                losses += [float(token_losses(model, *held_out, causal).mean()) for model, causal in every]
            curve.add(step, *(f"{loss:.4f}" for loss in losses))
        if last:
            break
    for twin in pair:
        save_transformer(twin.model, out / FOLDERS[twin.causal], torch.float16)
    print(f"{step} steps, {step * recipe.rows * recipe.context:,} tokens each; recipe {asdict(recipe)}")


def new_twin(recipe: TwinsRecipe, causal: bool) -> Twin:
    """Return a twin; both start from the same weights."""
    torch.manual_seed(recipe.seed)
    model = new_transformer(config_of(recipe))
    return Twin(model, new_optimizers(model, recipe), causal)


def held_out_rows(texts: list[str], tokenizer: Tokenizer, context: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets [rows, context], evenly spaced in the texts, each beginning with the start token."""
    ids = torch.cat([torch.tensor(tokenizer.encode(text).ids) for text in texts])
    check_enough(len(ids), context)
    begins = torch.linspace(0, len(ids) - context, rows).long()
    windows = torch.stack([ids[begin : begin + context] for begin in begins])
    return torch.cat([torch.full((rows, 1), START_ID), windows[:, :-1]], dim=1), windows


def report(folder: Path, held_out: list[str]) -> str:
    """Return the measured numbers of the checkpoint in folder, as on the card."""
    pair = twins.load(folder)
    ids, targets = held_out_rows(held_out, pair.tokenizer, pair.context, 1000)
    row = TokenBatch(ids[:32], torch.ones(32, pair.context) > 0, ())
    lines = [f"size: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 2**20:.2f} MiB in all"]
    lines.append(f"held-out text: {len(ids)} windows of {pair.context} tokens")
    for combination in twins.COMBINATIONS:
        loss, accuracy = twins.loss_and_accuracy(pair.models[combination.trained], ids, targets, causal=combination.run)
        scores = twins.copy_scores(pair.run(row, combination))
        layer, head = twins.best_head(scores)
        lines.append(
            f"trained {twins.with_or_without(combination.trained)}, run {twins.with_or_without(combination.run)}: "
            f"{loss:.3f} nats a token, next-token accuracy {accuracy:.1%}; "
            f"best copy head {head_name(layer, head)}: {scores.max():.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    from model.base import CHECKPOINTS

    print(report(CHECKPOINTS / "twins", read_books(Path(sys.argv[1])).held_out))
