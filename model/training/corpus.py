"""The story model's text: the children's books, a held-out end of each, and rows of tokens drawn from the rest."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

CHILDRENS_AUTHORS = (
    "aesop", "grimm", "carroll", "baum", "nesbit", "burnett", "barrie",
    "grahame", "macdonald", "sewell", "kipling", "porter", "montgomery",
)  # fmt: skip
HELD_OUT = 0.04  # the last 4% of every book is never trained on, by the tokenizer neither


@dataclass(frozen=True)
class Books:
    train: list[str]  # one string a book
    held_out: list[str]


def read_books(folder: Path) -> Books:
    """The children's books in folder, each split at the paragraph nearest to its last 4%."""
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


@dataclass
class Rows:
    """Draws training rows: a start token, then text, or a span that comes again.

    A quarter of the rows repeat a span (half of those random tokens, half text), after a lead-in and with a gap of
    random length, so that nothing but the content says where the span was seen before. This is what induction heads
    are made of (Olsson et al. 2022). First sightings of random tokens carry no loss: nobody can predict them.
    """

    tokens: Tensor  # [N] the training text
    paragraphs: Tensor  # [P] where paragraphs begin in it
    start: int  # the id of the start token
    vocabulary: range  # ids a random token is drawn from
    length: int  # tokens a row, the start token included
    generator: torch.Generator
    repeated: float = 0.25

    def batch(self, rows: int) -> tuple[Tensor, Tensor]:
        """Inputs [rows, length] and targets [rows, length], the next token of each; -100 where no loss is taken."""
        pairs = [self._repeated() if self._chance(self.repeated) else self._text() for _ in range(rows)]
        ids = torch.stack([row for row, _ in pairs])  # [rows, length + 1]
        loss = torch.stack([where for _, where in pairs])
        return ids[:, :-1], ids[:, 1:].masked_fill(~loss[:, 1:], -100)

    def _text(self) -> tuple[Tensor, Tensor]:
        ids = torch.cat([torch.tensor([self.start]), self._span(self.length, from_paragraph=self._chance(0.5))])
        return ids, torch.ones(self.length + 1, dtype=torch.bool)

    def _repeated(self) -> tuple[Tensor, Tensor]:
        random_tokens = self._chance(0.5)
        draw = self._noise if random_tokens else self._span
        span = draw(self._between(6, self.length // 2 - 8))
        parts = [torch.tensor([self.start]), draw(self._between(0, 16))]
        loss = [torch.tensor([False]), torch.full((len(parts[1]),), not random_tokens)]
        seen = False
        while sum(map(len, parts)) <= self.length:
            parts.append(span)
            loss.append(torch.full((len(span),), seen or not random_tokens))
            if seen:
                loss[-1][0] = not random_tokens  # after a gap of noise the span's return is itself a surprise
            gap = draw(self._between(1, 16) if self._chance(0.5) else 0)
            parts.append(gap)
            loss.append(torch.full((len(gap),), not random_tokens))
            seen = True
        return torch.cat(parts)[: self.length + 1], torch.cat(loss)[: self.length + 1]

    def _span(self, length: int, from_paragraph: bool = False) -> Tensor:
        last = len(self.tokens) - length
        if from_paragraph:
            begin = int(self.paragraphs[self._between(0, len(self.paragraphs) - 1)])
        else:
            begin = self._between(0, last)
        begin = min(begin, last)
        return self.tokens[begin : begin + length]

    def _noise(self, length: int) -> Tensor:
        return torch.randint(self.vocabulary.start, self.vocabulary.stop, (length,), generator=self.generator)

    def _between(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def _chance(self, share: float) -> bool:
        return float(torch.rand((), generator=self.generator)) < share
