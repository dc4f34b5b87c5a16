"""The story model: a small GPT-2 trained on the children's books in a folder.

    python -m model.training story --text DIR [--minutes 85] [--out FOLDER]

The learning rate follows the clock, so that a busy machine trains for fewer steps, not longer.
"""

import csv
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from model import masks
from model.atlas.unit import RANDOM_ROWS, RANDOM_SPAN
from model.gpt2 import load_transformer, save_transformer
from model.heads import measures
from model.text import FIRST_ID, START_ID
from model.transformer import Transformer, config_of
from model.why_causal import live_training

CHILDRENS_AUTHORS = [  # parts of file names
    *("aesop", "grimm", "carroll", "baum", "nesbit", "burnett", "barrie", "grahame", "macdonald", "sewell"),
    *("kipling", "porter", "montgomery"),
]
HELD_OUT = 0.04  # the last 4% of every book trains neither the model nor the tokenizer
BATCH = 16  # windows of held-out text per batch


@dataclass(frozen=True)
class Books:
    train: list[str]  # one string per book
    held_out: list[str]


def read_books(folder: Path) -> Books:
    """Read the children's books in folder, each split at the last paragraph break before its last 4%."""
    paths = [p for p in sorted(folder.glob("*.txt")) if any(author in p.name for author in CHILDRENS_AUTHORS)]
    if not paths:
        raise ValueError(f"expected text files named after {', '.join(CHILDRENS_AUTHORS)} in {folder}, found none")
    train, held_out = [], []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        cut = text.rfind("\n\n", 0, int(len(text) * (1 - HELD_OUT))) + 2
        train.append(text[:cut])
        held_out.append(text[cut:])
    return Books(train, held_out)


class LossCurve:
    """A loss.csv file: one line per evaluation, which is also printed."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "loss.csv"
        self._path.unlink(missing_ok=True)
        self.add(*columns)

    def add(self, *row: object) -> None:
        """Write a line: the values of the columns, as strings if they are rounded."""
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(row)
        print(*row, flush=True)


@dataclass
class Rows:
    """Draws training rows: a start token, then text, or a repeated span.

    A quarter of the rows repeat a span (half of those random tokens, half text), after a lead-in and with a gap of
    random length, so that only the content shows where the span occurred before. Such rows make induction heads form
    (Olsson et al. 2022). First occurrences of random tokens carry no loss: they are unpredictable.
    """

    tokens: Tensor  # [N] the training text
    paragraphs: Tensor  # [P] where paragraphs begin in it
    vocabulary: range  # ids a random token is drawn from
    length: int  # tokens per row, including the start token
    generator: torch.Generator
    repeated: float = 0.25

    def batch(self, rows: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets [rows, length], the next token of each; -100 where no loss is taken."""
        pairs = [self._repeated() if self._chance(self.repeated) else self._text() for _ in range(rows)]
        ids = torch.stack([row for row, _ in pairs])  # [rows, length + 1]
        loss = torch.stack([where for _, where in pairs])
        return ids[:, :-1], ids[:, 1:].masked_fill(~loss[:, 1:], -100)

    def _text(self) -> tuple[Tensor, Tensor]:
        ids = torch.cat([torch.tensor([START_ID]), self._span(self.length, from_paragraph=self._chance(0.5))])
        return ids, torch.ones(self.length + 1, dtype=torch.bool)

    def _repeated(self) -> tuple[Tensor, Tensor]:
        random_tokens = self._chance(0.5)
        draw = self._noise if random_tokens else self._span
        span = draw(self._between(6, self.length // 2 - 8))
        parts = [torch.tensor([START_ID]), draw(self._between(0, 16))]
        loss = [torch.tensor([False]), torch.full((len(parts[1]),), not random_tokens)]
        seen = False
        while sum(map(len, parts)) <= self.length:
            parts.append(span)
            loss.append(torch.full((len(span),), seen or not random_tokens))
            if seen:
                loss[-1][0] = not random_tokens  # after a gap of random tokens, the span's first token is unpredictable
            gap = draw(self._between(1, 16) if self._chance(0.5) else 0)
            parts.append(gap)
            loss.append(torch.full((len(gap),), not random_tokens))
            seen = True
        return torch.cat(parts)[: self.length + 1], torch.cat(loss)[: self.length + 1]

    def _span(self, length: int, from_paragraph: bool = False) -> Tensor:
        last = len(self.tokens) - length
        begin = self._between(0, len(self.paragraphs) - 1 if from_paragraph else last)
        begin = min(int(self.paragraphs[begin]), last) if from_paragraph else begin
        return self.tokens[begin : begin + length]

    def _noise(self, length: int) -> Tensor:
        return torch.randint(self.vocabulary.start, self.vocabulary.stop, (length,), generator=self.generator)

    def _between(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def _chance(self, share: float) -> bool:
        return float(torch.rand((), generator=self.generator)) < share


@torch.inference_mode()
def held_out_bits(model: Transformer, tokenizer: Tokenizer, texts: list[str]) -> float:
    """Return bits per character over whole texts: windows of the full context, in which the second half is predicted.

    Each window begins with the start token and overlaps the one before by half. The first window of a text is predicted
    as a whole; every token after its first half is predicted from at least half a context.
    """
    context = model.config.context
    step = context // 2
    nats, characters = 0.0, 0
    for text in texts:
        ids = torch.tensor(tokenizer.encode(text).ids)
        characters += len(text)
        windows, targets = [], []
        for begin in range(0, max(len(ids) - step, 1), step):
            row = torch.full((context + 1,), START_ID)
            target = torch.full((context,), -100)
            piece = ids[begin : begin + context]
            row[1 : len(piece) + 1] = piece
            fresh = 0 if begin == 0 else context - step
            target[fresh : len(piece)] = piece[fresh:]
            windows.append(row[:context])
            targets.append(target)
        for rows, wanted in zip(torch.stack(windows).split(BATCH), torch.stack(targets).split(BATCH), strict=True):
            nats += float(live_training.token_losses(model, rows, wanted, causal=True).sum())
    return nats / math.log(2) / characters


@torch.inference_mode()
def head_scores(model: Transformer) -> tuple[Tensor, Tensor]:
    """Return induction and previous-token scores [L,H] on random repeated sequences (fixed seed)."""
    tokens = range(FIRST_ID, model.config.vocabulary)
    ids = measures.repeated_tokens(RANDOM_ROWS, RANDOM_SPAN, tokens, START_ID, torch.Generator().manual_seed(0))
    return scores_on(model, ids, RANDOM_SPAN)


def scores_on(model: Transformer, ids: Tensor, span: int) -> tuple[Tensor, Tensor]:
    """Return induction and previous-token scores [L,H] on rows [B,T] of a start token and a span, repeated once."""
    weights, position = live_training.every_weight(model, ids, causal=True), torch.arange(ids.shape[1])  # [L,B,H,T,T]
    induction = torch.stack([measures.induction(weights[:, row], ids[row], position > span) for row in range(len(ids))])
    return induction.mean(0), measures.previous_token(weights, position > 0).mean(1)


def report(folder: Path, held_out: list[str]) -> str:
    """Return the measured numbers of the checkpoint in folder, as on the card."""
    model, tokenizer = load_transformer(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    induction, previous = head_scores(model)
    size = sum(path.stat().st_size for path in folder.iterdir())
    lines = [
        f"size: {size / 2**20:.2f} MiB in all",
        f"held-out text: {held_out_bits(model, tokenizer, held_out):.4f} bits per character "
        f"({sum(map(len, held_out)):,} characters)",
        f"heads with an induction score of at least 0.5: {int((induction >= 0.5).sum())}",
        f"heads with a previous-token score of at least 0.3: {int((previous >= 0.3).sum())}",
    ]
    for name, scores in (("induction", induction), ("previous-token", previous)):
        layer, head = divmod(int(scores.argmax()), scores.shape[1])
        lines.append(f"best {name} head: layer {layer}, head {head}: {scores.max():.3f}")
    return "\n".join(lines)


PAD, START = "<pad>", "<start>"  # in this order, their ids are model.text's PAD_ID and START_ID


def train_tokenizer(texts: list[str], entries: int) -> Tokenizer:
    """Train byte-level BPE (Radford et al. 2019), which can encode any text. <pad> is 0, <start> is 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        special_tokens=[PAD, START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@dataclass(frozen=True, kw_only=True)
class StoryRecipe(live_training.Rates):
    """Everything that determines the weights, except the text and the machine."""

    minutes: float = 85.0
    vocabulary: int = 4096
    context: int = 256
    layers: int = 6
    heads: int = 6
    width: int = 192
    rows: int = 16
    repeated: float = 0.25
    seed: int = 11


def train(folder: Path, out: Path, recipe: StoryRecipe) -> None:
    """Train on the books in folder and write a checkpoint, its tokenizer, its loss curve and its numbers to out."""
    books = read_books(folder)
    tokenizer = train_tokenizer(books.train, recipe.vocabulary)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    torch.manual_seed(recipe.seed)
    model = live_training.new_transformer(config_of(recipe))
    rows = training_rows(books, tokenizer, recipe)
    batch_loss = torch.compile(partial(mean_loss, model))
    optimizers = live_training.new_optimizers(model, recipe)
    columns = "step minutes training_loss held_out_bits_per_character best_induction best_previous"
    curve = LossCurve(out, columns.split())
    began, step = time.monotonic(), 0
    while (elapsed := (time.monotonic() - began) / 60) < recipe.minutes:
        done = elapsed / recipe.minutes
        loss = batch_loss(*rows.batch(recipe.rows))
        loss.backward()
        live_training.update(model, optimizers, live_training.rate_at(done, recipe.warmup))
        step += 1
        if step % 250 == 0:
            small = [text[:8000] for text in books.held_out]
            bits = held_out_bits(model, tokenizer, small)
            induction, previous = head_scores(model)
            best = (f"{float(scores.max()):.3f}" for scores in (induction, previous))
            curve.add(step, f"{elapsed:.2f}", f"{loss.item():.4f}", f"{bits:.4f}", *best)
            save_transformer(model, out, torch.float16)
    save_transformer(model, out, torch.float16)
    print(f"{step} steps, {step * recipe.rows * recipe.context:,} tokens; recipe {asdict(recipe)}")


def training_rows(books: Books, tokenizer: Tokenizer, recipe: StoryRecipe) -> Rows:
    """Return rows drawn from the books' tokens, with the beginnings of their paragraphs."""
    paragraphs = [paragraph + "\n\n" for book in books.train for paragraph in book.rstrip().split("\n\n")]
    encoded = [torch.tensor(e.ids) for e in tokenizer.encode_batch(paragraphs)]
    begins = torch.tensor([0] + [len(ids) for ids in encoded[:-1]]).cumsum(0)
    generator = torch.Generator().manual_seed(recipe.seed)
    ids = range(FIRST_ID, recipe.vocabulary)
    check_enough(sum(map(len, encoded)), recipe.context)
    return Rows(torch.cat(encoded), begins, ids, recipe.context, generator, recipe.repeated)


def check_enough(tokens: int, context: int) -> None:
    if tokens <= context:
        raise ValueError(f"expected texts of more tokens than the context, {context:,}, got {tokens:,}")


def mean_loss(model: Transformer, ids: Tensor, targets: Tensor) -> Tensor:
    """Return nats per token over the targets that are not -100, computed in bfloat16."""
    length = ids.shape[1]
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = model(ids, torch.arange(length), masks.causal(length, length)[None, None])
        logits = model.logits(states)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
