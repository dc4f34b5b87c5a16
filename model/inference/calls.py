"""A text run in several calls with a cache, as in inference engines: in chunks, after a cached prefix, or token by
token.

Each call computes the attention of its queries over all positions so far: a rectangle [Q,K] with Q <= K. Its mask is
the last Q rows of the K × K mask ("bottom-right", FlashAttention's convention since 2.1). A kernel that puts the first
query at position 0 ("top-left", is_causal of PyTorch's scaled_dot_product_attention) computes something else, as does
one that gets a mask in the first call only ("none"). Also several documents packed into one row, as in training, under
the usual conventions: each document's loss, packed and alone, shows which of them keep the documents apart. Sizes: T
positions of a text or a row, Q queries and K keys of a call, D documents.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.base import Model
from model.blocks import positions_under
from model.hardware import rounding
from model.inference.cost import SPLIT, lengths_within
from model.kv_cache import batch_of
from model.masks import AllowedCache, MaskContext, Masking, MaskSpec
from model.text import TokenBatch
from model.trace import target_losses

LINE_FEED = "\n"
ROUNDING = 2e-5  # of the largest logit: model families in tests/model/inference stay below a fifth of it
SHIFT_ROUNDING = 1e-3  # of the largest logit: float32 loses digits in rotations by thousands of positions
TRIED = 8  # tokens of the test whether only distances between positions count


def check_predicts(model: Model) -> None:
    """Check that a model predicts the next token from earlier tokens. Raises ValueError."""
    if model.kind == "encoder-decoder":
        template = N_("{model} reads a source as well: choose a decoder alone, with a language-model head")
        raise ValueError(msg(template, model=model.name))
    if model.kind != "decoder" or not model.predicts:
        template = N_(
            "{model} does not predict the next token from earlier ones: choose a decoder with a language-model head"
        )
        raise ValueError(msg(template, model=model.name))


def allowed_where_square(context: MaskContext, spec: MaskSpec, made: AllowedCache | None = None) -> Tensor | None:
    """Return the mask of a kernel that gets one only where Q = K, and none with a cache: wrong unless Q = 1."""
    return context.allowed(spec, made) if context.queries == context.keep.shape[-1] else None


ALL = torch.ones(1, 1, 1, 1, dtype=torch.bool)  # no mask
ALIGNMENTS: dict[str, Masking] = {
    "bottom-right": MaskContext.allowed,
    "top-left": MaskContext.allowed_at_top_left,
    "none": allowed_where_square,
}


@dataclass(frozen=True, eq=False)
class CallsComparison:
    """A text in several calls compared with one call. A second continuation of the cached prefix, if any, is also
    compared with the same tokens in one call; its S tokens follow the text's T.

    calls: each call's queries and keys. cells: int16 [T+S,T+S], the call that computed each cell of layer 0, −1 for
    none. computed, twice: how many cells of layer 0 were computed, and how many of them more than once. missed, extra:
    how many cells of its head 0 were omitted although one call computes them, and computed although it does not (a
    leak). differences: float32 [T+S], for each token the largest difference between its logits and those of one call;
    tolerance: the largest one that is rounding; size: the largest logit of one call. losses, in_one: float32 [T], nats,
    NaN at the first position.
    """

    calls: list[tuple[int, int]]
    cells: np.ndarray = field(repr=False)
    computed: int
    twice: int
    missed: int
    extra: int
    later: bool
    differences: np.ndarray = field(repr=False)
    size: float = field(repr=False)
    tolerance: float
    losses: np.ndarray = field(repr=False)
    in_one: np.ndarray = field(repr=False)

    @property
    def difference(self) -> float:
        """The largest difference between two logits."""
        return float(self.differences.max())

    def numpy(self) -> np.ndarray:
        """Return the call that computed each cell of the first layer, −1 for none: int16 [T+S,T+S]."""
        return self.cells


def open_ended(model: Model, text: str, rendered: bool) -> TokenBatch:
    """Encode a text as one row, without the tokens that the model adds after it. rendered: a chat template wrote it."""
    if rendered:
        return model.encode_rendered(text)[0]
    batch = model.encode([text])
    return batch.columns(slice(batch.ids.shape[1] - model.added_after))


def _continuation(model: Model, text: str, rendered: bool = False) -> TokenBatch:
    """Encode a text that follows another, without the tokens that the model adds around a text and without the space
    that tokenizers such as Llama 2's put before it: it is encoded after a line feed, if that is a token of its own."""
    for before in (LINE_FEED, ""):
        batch = open_ended(model, before + text, rendered)
        ends = batch.ends[0] if batch.ends else (1,)
        start = next((index for index, end in enumerate(ends) if end > len(before)), batch.ids.shape[1])
        if before and batch.ids[0, :start].tolist() == _line_feed(model, rendered):
            texts, own_ends = (batch.texts[0][1:],), (tuple(end - 1 for end in ends[start:]),)
            return replace(batch.columns(slice(start, None)), texts=texts, ends=own_ends)
    return batch.columns(slice(start, None))


def _line_feed(model: Model, rendered: bool) -> list[int]:
    """Return a line feed's ids, with those added before a text; empty if the tokenizer drops it."""
    try:
        return open_ended(model, LINE_FEED, rendered).ids[0].tolist()
    except ValueError:
        return []


def continuation_ids(model: Model, text: str, rendered: bool = False) -> tuple[list[int], str]:
    """Return a continuation's ids, and the rest of the text that did not fit. rendered: a chat template wrote it."""
    batch = _continuation(model, text, rendered)
    return batch.ids[0].tolist(), batch.cut[0]


def _continued(model: Model, begun: TokenBatch, text: str) -> TokenBatch:
    """Append a text to the only row of a batch; separators then split both as one text."""
    more = _continuation(model, text)
    ids, keep = (torch.cat(pair, dim=1) for pair in ((begun.ids, more.ids), (begun.keep, more.keep)))
    whole = TokenBatch(ids, keep, (begun.pieces[0] + more.pieces[0],), cut=more.cut)
    if not (begun.ends and more.ends):
        return whole
    at = begun.ends[0][-1]
    ends = (*begun.ends[0], *(at + end for end in more.ends[0]))
    return replace(whole, texts=(begun.texts[0][:at] + more.texts[0],), ends=(ends,))


def ends_of(tokens: int, chunks: Sequence[int] | int, prefix: int = 0) -> list[int]:
    """Return where each call ends: the first after `prefix` positions, if any, then one for each chunk.

    chunks: sizes that sum to the positions after the prefix; or one size for all, of which the last may be smaller.
    Raises ValueError for other sizes.
    """
    if not 0 <= prefix < tokens:
        raise ValueError(msg("expected a prefix from 0 to {most}, got {got}", most=tokens - 1, got=prefix))
    rest = tokens - prefix
    smallest = chunks if isinstance(chunks, int) else min(chunks, default=0)
    if smallest < 1:
        raise ValueError(msg("expected chunks of at least 1 token, got {got}", got=smallest))
    if isinstance(chunks, int):
        chunks = [min(chunks, rest - start) for start in range(0, rest, chunks)]
    if sum(chunks) != rest:
        template = N_(
            "expected chunks of {count} tokens together, after a cached prefix of {prefix}, or one size for all, got "
            "{sizes} = {sum}"
        )
        sizes = " + ".join(map(str, chunks))
        raise ValueError(msg(template, count=rest, prefix=prefix, sizes=sizes, sum=sum(chunks)))
    return [end for end in np.cumsum([prefix, *chunks]).tolist() if end]


class _ComputedCells:
    """The cells of layer 0 that calls compute, [N,N]: how often each, and by which call last (−1 for none)."""

    def __init__(self, tokens: int, align: str) -> None:
        self.counts, self.cells = np.zeros((tokens, tokens), np.int64), np.full((tokens, tokens), -1, np.int16)
        self.calls: list[tuple[int, int]] = []
        self.later = False  # whether a layer after the first had a wrong mask
        self._masking, self._mask = ALIGNMENTS[align], torch.empty(0)

    def masking(self, context: MaskContext, spec: MaskSpec, made: AllowedCache | None = None) -> Tensor | None:
        """Return the mask of a layer in the current call."""
        mask = self._masking(context, spec, made)
        if context.layer == 0:
            self._mask = ALL if mask is None else mask.cpu()
        elif self._masking != MaskContext.allowed:
            right = context.allowed(spec, made)
            self.later |= bool(((ALL if mask is None else mask.cpu()) != (ALL if right is None else right.cpu())).any())
        return mask

    def add(self, queries: np.ndarray, keys: np.ndarray) -> None:
        """Count the call that was just made, whose tokens are these rows and columns."""
        here = self._mask.expand(1, -1, len(queries), len(keys))[0, 0].numpy()
        where = np.ix_(queries, keys)
        self.counts[where] += here
        self.cells[where] = np.where(here, len(self.calls), -1)
        self.calls.append((len(queries), len(keys)))


@torch.inference_mode()
def compare_calls(
    model: Model,
    batch: TokenBatch,
    spec: MaskSpec,
    ends: Sequence[int],
    align: str = "bottom-right",
    second: str = "",
) -> CallsComparison:
    """Run the only row of a batch in calls up to each of `ends`, and in one call under the same masks.

    second: a text read in one more call, after what the first call computed. Raises ValueError for an alignment not in
    ALIGNMENTS, and what Model.call raises.
    """
    if align not in [*ALIGNMENTS]:  # `align` may be unhashable
        raise ValueError(msg("expected an alignment of {names}, got {got}", names=", ".join(ALIGNMENTS), got=align))
    tokens, prefix = batch.ids.shape[1], ends[0]
    texts = [(batch, np.arange(tokens), [0, *ends])]  # batch, its tokens' rows in the result, and its calls' bounds
    if second:
        other = _continued(model, batch.columns(slice(prefix)), second)
        whole = other.ids.shape[1]
        texts.append((other, np.r_[:prefix, tokens : tokens + whole - prefix], [prefix, whole]))
    computed = _ComputedCells(texts[-1][1][-1] + 1, align)
    right = np.zeros(computed.cells.shape, bool)
    states, expected = [], []
    caches: dict[int, Any] = {0: None}  # number of tokens -> the cache after them
    for text, rows, steps in texts:
        trace, positions, first = model.run(text, spec), positions_under(spec, text), steps[0]
        expected.append(trace.states[:, first:])
        right[np.ix_(rows[first:], rows)] = trace.allowed(0)[first:].numpy()
        for start, end in pairwise(steps):
            some, at = text.columns(slice(end)), positions[:, start:end]
            done = model.call(some, at, spec, caches[start], computed.masking)
            caches = {count: cache for count, cache in caches.items() if count == prefix} | {end: done.cache}
            states.append(done.states)
            computed.add(rows[start:end], rows[:end])
    ours, theirs = (model.readout(torch.cat(some, dim=1))[0].float() for some in (states, expected))
    return CallsComparison(
        calls=computed.calls,
        cells=computed.cells,
        computed=int(computed.counts.sum()),
        twice=int((computed.counts > 1).sum()),
        missed=int((right & (computed.counts == 0)).sum()),
        extra=int(((computed.counts > 0) & ~right).sum()),
        later=computed.later,
        differences=(ours - theirs).abs().amax(-1).cpu().numpy(),
        size=(size := float(theirs.abs().max())),
        tolerance=rounding(states[0].dtype, ROUNDING) * size,
        losses=_losses(ours[:tokens], batch.ids[0]),
        in_one=_losses(theirs[:tokens], batch.ids[0]),
    )


def _losses(logits: Tensor, ids: Tensor) -> np.ndarray:
    """Return the loss of each token given the tokens before it: float32 [T], nats."""
    given = ids[1:].to(logits.device)
    found = target_losses(logits[:-1], given)
    return np.concatenate([[np.nan], found.cpu().numpy()]).astype(np.float32)


CONVENTIONS = {  # whether documents are masked from each other, and whether positions restart in each
    "both": (True, True),
    "mask": (True, False),
    "positions": (False, True),
    "neither": (False, False),
}


@dataclass(frozen=True, eq=False)
class PackedLosses:
    """Losses of packed documents. sizes: tokens of each document. alone: float32 [D], nats, the mean loss of each
    document's tokens after its first when it is run alone. packed: the same within the row, by convention. differences:
    by convention, the largest difference between a document's logits in the row and alone; tolerance: the largest one
    that is rounding.

    float32 rounds the rotary angles of other positions differently. So if a difference is above the tolerance and at
    most SHIFT_ROUNDING of the largest logit, positions continue through the row, and the model depends only on
    distances, the document alone is run at its positions in the row. Angles that depend on the row's length (LongRoPE,
    dynamic NTK) cannot be distinguished from rounding up to that bound.
    """

    sizes: list[int]
    alone: np.ndarray = field(repr=False)
    packed: dict[str, np.ndarray] = field(repr=False)
    differences: dict[str, float]
    tolerance: float


@torch.inference_mode()
def pack(model: Model, batch: TokenBatch, documents: str | Sequence[int]) -> PackedLosses:
    """Compare the only row of a batch, as packed documents, under each of CONVENTIONS that the model supports.

    documents: the separator that ends them, or the number of tokens of each; the rest is one more document. Raises
    ValueError for fewer than two documents, and what Model.run raises.
    """
    if isinstance(documents, str):
        separator = documents
    else:
        separator, batch = ".", _marked(batch, documents)
    parts = batch.split(separator)[0]
    sizes = [size for size in torch.bincount(parts).tolist() if size]
    if len(sizes) < 2 and documents == separator:
        if not separator:
            raise ValueError(msg("expected a separator of documents, got none: type one"))
        template = N_(
            "expected a text of several documents, got one: “{separator}” does not split it. Choose another separator, "
            "or give the number of tokens of each document"
        )
        raise ValueError(msg(template, separator=documents))
    if len(sizes) < 2:
        template = N_("expected the lengths of several documents, got one of all {count}: give a smaller number")
        raise ValueError(msg(template, count=sizes[0]))
    texts = batch.ids[0].split(sizes)
    runs = [model.run(batch_of(model, tuple(text.tolist())), model.standard).states for text in texts]
    alone = [model.readout(states)[0].float() for states in runs]
    restarting = torch.cat([torch.arange(size) for size in sizes])[None]
    size = max(float(one.abs().max()) for one in alone)
    tolerance, loosest = (rounding(runs[0].dtype, single) * size for single in (ROUNDING, SHIFT_ROUNDING))
    packed, differences = {}, {}
    for name, (masked, restarted) in CONVENTIONS.items():
        if restarted and not model.takes_positions:
            continue
        spec = model.standard.replace(**{SPLIT: separator}) if masked else model.standard
        row = logits_of(model, replace(batch, positions=restarting) if restarted else batch, spec).split(sizes)
        packed[name] = _mean_losses(row, texts)
        differences[name] = _difference(row, alone)
        doubtful = not restarted and model.takes_positions and tolerance < differences[name] <= loosest
        if doubtful and _only_distances_count(model, max(texts, key=len)[:TRIED]):
            starts = np.cumsum([0, *sizes[:-1]]).tolist()
            moved = (_logits_from(model, text, start) for text, start in zip(texts, starts, strict=True))
            differences[name] = _difference(row, moved)
    return PackedLosses(sizes, _mean_losses(alone, texts), packed, differences, tolerance)


def _difference(some: Iterable[Tensor], others: Iterable[Tensor]) -> float:
    """Return the largest difference between two logits of the same token."""
    return max(float((one - other).abs().max()) for one, other in zip(some, others, strict=True))


def _logits_from(model: Model, text: Tensor, start: int) -> Tensor:
    """Return the logits [T,V] of a text alone whose first token is at position `start`."""
    batch = batch_of(model, tuple(text.tolist()))
    return logits_of(model, replace(batch, positions=torch.arange(start, start + len(text))[None]), model.standard)


def _only_distances_count(model: Model, text: Tensor) -> bool:
    """Whether a short text gives the same logits one position later. At such early positions float32 has not lost
    digits of rotary angles yet: their error grows with the position."""
    first, moved = (_logits_from(model, text, start) for start in (0, 1))
    return _difference([first], [moved]) <= ROUNDING * float(first.abs().max())


def _marked(batch: TokenBatch, sizes: Sequence[int]) -> TokenBatch:
    """Return the batch as if its text had one letter per token, and a full stop for the last token of each document."""
    tokens = batch.ids.shape[1]
    ends = set(np.cumsum(lengths_within(tokens, sizes)).tolist())
    text = "".join("." if position in ends else "x" for position in range(1, tokens + 1))
    return replace(batch, texts=(text,), ends=(tuple(range(1, tokens + 1)),))


def logits_of(model: Model, batch: TokenBatch, spec: MaskSpec) -> Tensor:
    """Return the logits [T,V] of a batch's only row."""
    return model.readout(model.run(batch, spec).states)[0].float()


def _mean_losses(logits: Sequence[Tensor], texts: Sequence[Tensor]) -> np.ndarray:
    """Return the mean loss of each text's tokens after its first: float32 [D], nats; NaN for a text of one token."""
    pairs = zip(logits, texts, strict=True)
    means = [target_losses(some[:-1], text[1:].to(some.device)).mean() for some, text in pairs]
    return torch.stack(means).cpu().numpy()
