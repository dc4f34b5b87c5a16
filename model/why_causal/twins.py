"""The twins: two models that differ only in whether they were trained with the causal mask, and what each makes of a
text when run with and without the mask: four combinations. T tokens of a text, L layers, H heads, V vocabulary. Losses
are natural logarithms (nats)."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.base import CHECKPOINTS, Model, files_key
from model.decoder import DecoderModel
from model.gpt2 import load_transformer
from model.heads.survey import every_weight
from model.kv_cache import batch_of
from model.masks import MaskSpec
from model.sampling import Sampling, draw
from model.text import FIRST_ID, PAD_ID, START_ID, BatchTokenizer, TokenBatch
from model.trace import Trace, target_losses

FOLDER = CHECKPOINTS / "twins"
FOLDERS = {True: "with_mask", False: "without_mask"}
PROMPT, WRITTEN = 12, 48  # tokens of the prompt, including the start token, and tokens generated
WARMTH = 0.8  # the temperature of sampling


@dataclass(frozen=True)
class Combination:
    """Two masks. trained: whether it was trained with the causal mask. run: whether it is run with it."""

    trained: bool
    run: bool


COMBINATIONS = tuple(Combination(trained, run) for trained in (True, False) for run in (True, False))


@dataclass(frozen=True, eq=False)
class TwinPair:
    """Both models, by whether they were trained with the mask, and their tokenizer. Read-only: threads may share it."""

    models: dict[bool, Model]
    tokenizer: Tokenizer

    @property
    def context(self) -> int:
        """The most tokens that either model takes, including the start token."""
        return self.models[True].context

    def encode(self, text: str) -> TokenBatch:
        """Encode all of the text as one row, including line breaks. Raises ValueError for a text without a token."""
        return self.models[True].encode([text])

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode([token for token in ids if token != START_ID])

    def words(self) -> range:
        return range(FIRST_ID, self.tokenizer.get_vocab_size())

    def run(self, batch: TokenBatch, one: Combination) -> Trace:
        return self.models[one.trained].run(batch, MaskSpec(causal=one.run))


@dataclass(frozen=True, eq=False)
class TwinOutcome:
    """The results of one combination on a text. losses: float32 [T], of each token given what the model saw; NaN at the
    first. right: bool [T], whether the most likely token there is the text's; False at the first. copies: each head's
    copy score, float32 [L,H]. echoes: the share, 0 to 1, of positions where the most likely next token is the current
    token."""

    losses: np.ndarray
    right: np.ndarray
    copies: np.ndarray
    echoes: float

    @property
    def loss(self) -> float:
        """The mean loss, in nats per token."""
        return float(np.nanmean(self.losses))

    @property
    def accuracy(self) -> float:
        """The share, 0 to 1, of tokens that were the most likely ones."""
        return float(self.right[1:].mean())


@dataclass(frozen=True, eq=False)
class Change:
    """The effect of replacing one token: the largest |difference| at each position, both float32 [T]. logits: over the
    vocabulary. weights: over all layers, heads and keys of that query's row. position: the token's position."""

    logits: np.ndarray
    weights: np.ndarray
    position: int

    def earlier(self) -> tuple[float, float]:
        """Return the largest differences of logits and of weights before the token."""
        return float(self.logits[: self.position].max()), float(self.weights[: self.position].max())

    def later(self) -> tuple[float, float]:
        """Return the largest differences of logits and of weights from the token on."""
        return float(self.logits[self.position :].max()), float(self.weights[self.position :].max())


@dataclass(frozen=True, eq=False)
class Curves:
    """The losses of both models during training, in nats per token, each [lines of loss.csv]. training: by whether with
    the mask, the mean of the steps since the line before. last_token: the same for each row's last target alone, which
    has nothing to its right. held_out: of each combination, on text that neither was trained on."""

    steps: np.ndarray
    training: dict[bool, np.ndarray]
    last_token: dict[bool, np.ndarray]
    held_out: dict[Combination, np.ndarray]


def load(folder: Path = FOLDER) -> TwinPair:
    """Load the twins. Raises CheckpointError for files that make no model."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    models: dict[bool, Model] = {}
    for trained, name in FOLDERS.items():
        network = load_transformer(folder / name)
        encoder = BatchTokenizer(tokenizer, network.config.context, pad=PAD_ID, start=[START_ID])
        title = f"twin trained {with_or_without(trained)} the mask"  # not shown
        models[trained] = DecoderModel(title, network, encoder, key=files_key(title, folder / name))
        models[trained].standard = MaskSpec(causal=trained)
    return TwinPair(models, tokenizer)


def curves(folder: Path = FOLDER) -> Curves:
    """Read loss.csv."""
    with (folder / "loss.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    columns = {name: np.array([float(line[name]) for line in lines]) for name in lines[0]}
    words = {way: with_or_without(way) for way in (True, False)}
    return Curves(
        columns["step"],
        {way: columns[f"{word}_training"] for way, word in words.items()},
        {way: columns[f"{word}_last_token"] for way, word in words.items()},
        {one: columns[f"{words[one.trained]}_run_{words[one.run]}"] for one in COMBINATIONS},
    )


def with_or_without(causal: bool) -> str:
    return "with" if causal else "without"


def outcome(trace: Trace) -> TwinOutcome:
    """Return the results of a run on the only row of its batch."""
    ids, best = trace.batch.ids[0], trace.logits[0].argmax(-1)[:-1]  # at each position, of the next token
    right = torch.cat([torch.tensor([False]), best == ids[1:]])
    echoes = float((best == ids[:-1]).float().mean())
    return TwinOutcome(trace.losses().numpy(), right.numpy(), copy_scores(trace), echoes)


def repeats(batch: TokenBatch) -> float:
    """Return the share, 0 to 1, of the text's tokens that equal the token before."""
    ids = batch.ids[0]
    return float((ids[1:] == ids[:-1]).float().mean())


def copy_scores(trace: Trace) -> np.ndarray:
    """Return each head's mean weight on the next token, 0 to 1, float32 [L,H], over all rows that have one."""
    rows = [copy_score(_weights(trace, row)) for row in range(len(trace.batch.ids))]
    return torch.stack(rows).mean(0).numpy()


def copy_score(weights: Tensor) -> Tensor:
    """Return the mean weight on position t + 1 over all queries t that have one: [.., T, T] -> [..]; 0 for T = 1."""
    if weights.shape[-1] < 2:
        return weights.new_zeros(weights.shape[:-2])
    return weights.diagonal(1, dim1=-2, dim2=-1).mean(-1)


def best_head(scores: np.ndarray) -> tuple[int, int]:
    """Return layer and head of the highest score [L,H]."""
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return layer, head


@torch.inference_mode()
def write(
    model: Model, ids: Sequence[int], *, causal: bool, seed: int | None = None, count: int = WRITTEN
) -> list[int]:
    """Return ids and up to `count` more, as the context allows, each from a run on all before it: the most likely one,
    or with a seed a sampled one. Without the mask, the tokens before the last attend to what was generated after them.
    """
    how = Sampling(temperature=0) if seed is None else Sampling(WARMTH, seed=seed)
    written = list(ids)
    for _ in range(min(count, model.context - len(ids))):
        trace = model.run(batch_of(model, tuple(written)), MaskSpec(causal=causal))
        logits = model.readout(trace.states[0, -1])
        logits[:FIRST_ID] = -torch.inf  # no padding and no second start token
        written.append(draw(logits, how, len(written)).token)
    return written


@torch.inference_mode()
def change(model: Model, batch: TokenBatch, position: int, token: int, *, causal: bool) -> Change:
    """Return the effect of replacing the token at `position`, from 1, of the batch's only row by another."""
    if not 1 <= position < batch.ids.shape[1]:
        raise ValueError(f"expected a position from 1 to {batch.ids.shape[1] - 1}, got {position}")  # not shown
    ids = batch.ids.clone()
    ids[0, position] = token
    before, after = (model.run(replace(batch, ids=some), MaskSpec(causal=causal)) for some in (batch.ids, ids))
    logits = (after.logits[0] - before.logits[0]).abs().amax(-1)  # [T,V] -> [T]
    weights = (_weights(after) - _weights(before)).abs().amax((0, 1, 3))  # [L,H,T,T] -> [T]
    return Change(logits.numpy(), weights.numpy(), position)


@torch.inference_mode()
def loss_and_accuracy(model: Model, ids: Tensor, targets: Tensor, *, causal: bool) -> tuple[float, float]:
    """Return mean nats per token and the share of targets that are the most likely, for ids and targets [B,T]."""
    losses, right = [], []
    for some, wanted in zip(ids.split(50), targets.split(50), strict=True):
        logits = model.run(TokenBatch(some, torch.ones_like(some) > 0, ()), MaskSpec(causal=causal)).logits
        losses.append(target_losses(logits.transpose(1, 2), wanted))
        right.append(logits.argmax(-1) == wanted)
    return float(torch.cat(losses).mean()), float(torch.cat(right).float().mean())


def _weights(trace: Trace, row: int = 0) -> Tensor:
    """Return all weights [L,H,T,T], which is affordable since the twins' context is short."""
    return torch.from_numpy(every_weight(trace, row))
