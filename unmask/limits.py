"""Limits on the tokens of a row that a model reads, for Python and the command line."""

from typing import TYPE_CHECKING

from model.base import TRACE_BYTES, Model
from model.decoder import DecoderModel
from model.text import truncation_message

if TYPE_CHECKING:
    from unmask.runs import Run


def check_lengths(model: Model, lengths: list[int]) -> None:
    """Check rows of ids. Raises ValueError for rows without a token, or with more than the model reads."""
    if not all(0 < length <= model.context for length in lengths):
        more = _more_tokens(model)
        how = f": {more}" if more and min(lengths) else ""
        raise ValueError(f"expected 1 to {model.context:,} ids in each row, got {lengths!s:.80}{how}")


def cut_sentence(run: "Run") -> str:
    """Return which part of the run's text was not read, and how to read more of it, as a sentence."""
    more = _more_tokens(run.model)
    return truncation_message(run.cut, run.model.context) + (f" {more}." if more else "")


def _more_tokens(model: Model) -> str:
    """Return how to make a model read more tokens in a row, or why it cannot; "" if it reads its whole context."""
    whole = model.describe().context
    most = whole if isinstance(model, DecoderModel) else min(whole, model.most_cells)  # memory limits other models only
    if most > model.context:
        return f"unmask.load(…, tokens={most}) or UNMASK_TOKENS={most} reads up to {most:,}"
    note = f"Unmask keeps at most {TRACE_BYTES >> 20} MiB of queries, keys and values"
    return note if whole > model.context else ""
