"""The induction model: two layers of attention alone, in which an induction head forms within a few hundred steps.

    python -m model.training induction [--steps 1500] [--out FOLDER]     train, keep the checkpoints of CHECKPOINTS_AT
    python -m model.training.induction [FOLDER]                          print the numbers on its card

Attention-only as in Elhage et al. 2021, trained on repeated random text, which only an induction head can predict
(Olsson et al. 2022). Stored in GPT-2's layout, which everything reads: its MLPs have one neuron, and add 0.
"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from model.base import CHECKPOINTS
from model.gpt2 import load_transformer, save_transformer
from model.heads.view import head_name
from model.text import FIRST_ID, START_ID
from model.training.story import LossCurve, scores_on, train_tokenizer
from model.transformer import Transformer, config_of
from model.why_causal import live_training

CHECKPOINTS_AT = (0, 50, 100, 150, 200, 250, 300, 325, 350, 375, 400, 425, 450, 475, 500, 550, 600, 700, 900)
VOCABULARY = 258  # padding, start and the 256 bytes
SHORTEST, LONGEST, LEAD = 4, 31, 8  # tokens of a span, and most tokens before it
EVERY = 25  # steps between two lines of loss.csv
MEASURED, SPAN = 64, 25  # rows that are measured, and the tokens that each repeats
COLUMNS = "step loss_first loss_again previous_token_layer_0 induction_layer_1"


@dataclass(frozen=True, kw_only=True)
class InductionRecipe(live_training.Rates):
    """Everything that determines the weights, except the machine. louder: scale of the initial positions."""

    steps: int = 1500
    context: int = 64
    layers: int = 2
    heads: int = 8
    width: int = 64
    rows: int = 32
    matrix_rate: float = 1e-2
    other_rate: float = 1e-3
    louder: float = 8.0
    seed: int = 1


def train(out: Path, recipe: InductionRecipe) -> None:
    """Write the last checkpoint to out, earlier ones to folders named by their step, and the losses. Raises ValueError
    if out has later checkpoints, from another training."""
    later = [step for step in CHECKPOINTS_AT if step >= recipe.steps and (out / str(step)).exists()]
    if later:
        raise ValueError(f"expected a folder without checkpoints of a longer training, {out} has step {later[0]}")
    torch.set_num_threads(1)  # so that a second run on the same machine gives the same weights
    torch.manual_seed(recipe.seed)
    model = live_training.new_transformer(config_of(recipe, vocabulary=VOCABULARY, mlp_width=1))
    for name, weight in model.named_parameters():
        if "mlp" in name:  # stays at 0
            weight.requires_grad_(False).zero_()
    model.position_embedding.weight.data.mul_(recipe.louder)
    optimizers = live_training.new_optimizers(model, recipe)
    generator = torch.Generator().manual_seed(recipe.seed)
    curve = LossCurve(out, COLUMNS.split())
    for step in range(recipe.steps + 1):
        if step % EVERY == 0 or step == recipe.steps:
            curve.add(step, *(f"{number:.4f}" for number in measure(model).numbers))
        if step in CHECKPOINTS_AT or step == recipe.steps:
            save(model, out if step == recipe.steps else out / str(step))
        ids, targets = repeated_rows(recipe.rows, recipe.context, generator)
        losses = live_training.token_losses(model, ids, targets, causal=True)
        (losses.sum() / (targets >= 0).sum()).backward()
        live_training.update(model, optimizers, live_training.rate_at(step / recipe.steps, recipe.warmup))
    print(f"{recipe.steps} steps of {recipe.rows * recipe.context:,} tokens; recipe {asdict(recipe)}")
    print(report(out))


def save(model: Transformer, folder: Path) -> None:
    """Save a whole model with its tokenizer, in which every byte is a token."""
    save_transformer(model, folder, torch.float16)
    train_tokenizer([], VOCABULARY).save(str(folder / "tokenizer.json"))


def repeated_rows(rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return inputs and targets [rows, length]: a start token, up to LEAD random tokens, then a repeated span of
    SHORTEST to LONGEST different random tokens. Targets up to the first repeated token are -100: they are
    unpredictable."""
    tokens = different_tokens(rows, length, generator)
    position = torch.arange(length)
    span = torch.randint(SHORTEST, LONGEST + 1, (rows, 1), generator=generator)
    lead = torch.randint(0, LEAD + 1, (rows, 1), generator=generator)
    again = torch.where(position < lead, position, lead + (position - lead) % span)  # [rows, length]
    targets = tokens.gather(1, again)
    ids = torch.cat([torch.full((rows, 1), START_ID), targets[:, :-1]], dim=1)
    return ids, targets.masked_fill(position <= lead + span, -100)


def different_tokens(rows: int, count: int, generator: torch.Generator) -> Tensor:
    """Return [rows, count] random ordinary tokens, distinct within each row."""
    return FIRST_ID + torch.rand(rows, VOCABULARY - FIRST_ID, generator=generator).argsort(dim=-1)[:, :count]


@dataclass(frozen=True, eq=False)
class Formation:
    """How far the heads have formed. first, again: mean nats of tokens at their first and their second occurrence.

    previous, induction: [L,H], each head's mean weight on the previous token, and on what followed the same token.
    """

    first: float
    again: float
    previous: Tensor
    induction: Tensor

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values of COLUMNS, without the step; for heads, the best of layer 0 and of layer 1."""
        return self.first, self.again, float(self.previous[0].max()), float(self.induction[1].max())


@torch.inference_mode()
def measure(model: Transformer) -> Formation:
    """Measure a model on fixed rows of a start token and SPAN random tokens, repeated once."""
    once = different_tokens(MEASURED, SPAN, torch.Generator().manual_seed(0))
    ids = torch.cat([torch.full((MEASURED, 1), START_ID), once, once], dim=1)
    losses = live_training.token_losses(model, ids[:, :-1], ids[:, 1:], causal=True)
    induction, previous = scores_on(model, ids, SPAN)
    again = losses[:, SPAN + 1 :]  # the first token of the repetition is unpredictable
    return Formation(float(losses[:, :SPAN].mean()), float(again.mean()), previous, induction)


def report(folder: Path) -> str:
    """Return the measured numbers of the checkpoints in folder, as on the card."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    lines = [f"size: {size / 2**20:.2f} MiB in all"]
    steps = [folder / str(step) for step in CHECKPOINTS_AT if (folder / str(step)).is_dir()]
    for path in (*steps, folder):
        found = measure(load_transformer(path))
        heads = head_name(0, int(found.previous[0].argmax())), head_name(1, int(found.induction[1].argmax()))
        first, again, previous, induction = found.numbers
        lines.append(
            f"{path.name}: loss {first:.2f} first, {again:.3f} again; previous token {previous:.3f} ({heads[0]}), "
            f"induction {induction:.3f} ({heads[1]})"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINTS / "induction"))
