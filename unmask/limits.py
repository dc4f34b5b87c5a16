"""How many tokens of a row a model reads, for Python and the command line."""

from typing import TYPE_CHECKING

from model.base import TRACE_BYTES, Model
from model.decoder import DecoderModel
from model.text import truncation_message

if TYPE_CHECKING:
    from unmask.runs import Run


def check_lengths(model: Model, lengths: list[int]) -> None:
    """Raises ValueError for rows without a token, or with more than the model reads."""
    if not all(0 < length <= model.context for length in lengths):
        more = _more_tokens(model)
        how = f": {more}" if more and min(lengths) else ""
        raise ValueError(f"expected 1 to {model.context:,} ids in each row, got {lengths!s:.80}{how}")


def cut_sentence(run: "Run") -> str:
    """What of the run's text was not read, and how more of it is."""
    more = _more_tokens(run.model)
    return truncation_message(run.cut, run.model.context) + (f" {more}." if more else "")


def _more_tokens(model: Model) -> str:
    """How to have a model read more tokens in a row, or why it does not; "" where it reads its whole context."""
    whole = model.describe().context
    most = whole if isinstance(model, DecoderModel) else min(whole, model.most_cells)  # which memory does not limit
    if most > model.context:
        return f"unmask.load(…, tokens={most}) or UNMASK_TOKENS={most} reads up to {most:,}"
    kept = f"Unmask keeps at most {TRACE_BYTES >> 20} MiB of queries, keys and values"
    return kept if whole > model.context else ""
