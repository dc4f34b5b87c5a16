"""What the page reads of a text: a few short lines, of unequal length, so that some of them get padding."""

from dataclasses import dataclass, replace

from model.base import Model
from model.masks import MaskSpec
from model.text import TokenBatch, rows_of, shortened

MOST_ROWS = 8
MOST_TOKENS = 48  # of a row; all of them, and what is added, have room for a label
# Makes a row longer than the reader's, so that theirs gets padding.
ADDED = "and then they all went home again."  # not shown but as a text that models read


@dataclass(frozen=True)
class Text:
    """What the page reads of a text: its lines; how many were cut to MOST_TOKENS; whether the last line was added.

    left_out: lines beyond MOST_ROWS.
    """

    lines: tuple[str, ...]
    cut: int
    added: bool
    left_out: int = 0


def prepared(model: Model, text: str) -> Text:
    """Lines of at most MOST_TOKENS, and one more where all are equally long: bugs with padding need some.

    Raises ValueError for a text that the model has no tokens for.
    """
    lines, left_out = rows_of(text, MOST_ROWS)
    short = [_shortened(model, line) for line in lines]
    added = len({_length(model, line) for line in short}) < 2
    rows = [*short, f"{short[0].rstrip()} {ADDED}"] if added and short else short
    return Text(tuple(rows), sum(map(str.__ne__, lines, short)), added, left_out)


def targets_for(model: Model, text: Text) -> list[str] | None:
    """An encoder-decoder's targets: its decoder, which has both masks, reads the same lines."""
    return list(text.lines) if model.kind == "encoder-decoder" else None


def attention_for(model: Model) -> str:
    """The one of the model's attentions that can have a causal and a padding mask: a decoder's, where it has one."""
    return "decoder" if "decoder" in model.attentions else model.attentions[0]


def masks_for(model: Model) -> MaskSpec:
    """The model's own masks, and the causal one: most bugs are about it."""
    return replace(model.standard, causal=True, padding=True)


def _length(model: Model, line: str) -> int:
    """How many positions a line takes, 0 where the model has no tokens for it."""
    try:
        return _read(model, [line]).ids.shape[1]
    except ValueError:
        return 0


def _shortened(model: Model, line: str) -> str:
    """The beginning of a line that takes at most MOST_TOKENS positions."""
    try:
        return shortened(line, min(MOST_TOKENS, model.context - 1), lambda lines: _read(model, lines))
    except ValueError:
        return line


def _read(model: Model, lines: list[str]) -> TokenBatch:
    return model.encode(lines, "right", lines if model.kind == "encoder-decoder" else None)
