"""One run of a model: every object that it returns displays itself in a notebook and converts to NumPy."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from torch import Tensor

from model import catalog
from model.base import Model
from model.errors import index, items, whole_numbers
from model.heads.merging import By, merge_groups, merged_head, merged_weights
from model.heads.survey import Survey, changes, every_weight, survey
from model.heads.view import MAX_CELLS, HeadView, head_part, mask_view
from model.inference.calls import CallsComparison, PackedLosses, check_predicts, compare_calls, ends_of, pack
from model.inference.draft_tree import DraftTree, typed_tree, verify_tree
from model.inference.streaming import MAX_STREAMED, StreamedText, ids_of, stream
from model.masks import MaskSpec
from model.network_state import NetworkState, weights_in
from model.spec import MAX_STROKES
from model.text import TokenBatch
from model.trace import Trace
from unmask.analyses import Analyses
from unmask.checking import Checkable, tokens_in
from unmask.live_head import LiveHead
from unmask.masks import expect_text, spec_of
from unmask.pictures import ABSENT, MAX_TOKENS, HeadPicture, LeakPicture, Picture, Predicted, head_picture, predicted
from viz.heads.cells import changed, weight_text, window
from viz.html import tag
from viz.mask_lab.canvas import canvas_packet
from viz.numbers import TOP, Candidate, key_count, leak_grid, leak_notes, mean_share, percent, query_count, token_count
from viz.saved.explorer import CHANGES, explorer_page
from viz.saved.standalone import Canvas, page
from viz.sentence import loss_words

MAX_PREDICTED = 1_000_000  # next tokens in one table, which is more than any vocabulary
MAX_WHOLE = 6_000**2  # most numbers of one head that are computed at once: 144 MB
MAX_CHECKED = 24  # tokens of a run that `check` reads: each takes a forward of its own


@dataclass(frozen=True, eq=False, repr=False)
class Run(Analyses, Checkable):
    """One forward pass, of which one row is shown. trace: what it recorded (model.trace.Trace). network: transformers'
    own, if it was given in memory. weights: their state then: what needs them raises ValueError once they have
    changed."""

    model: Model
    trace: Trace
    row: int = 0
    network: Any = None
    by: By = "tokens"
    weights: NetworkState | None = field(default=None, repr=False)

    @property
    def title(self) -> str:  # type: ignore[override]
        """The model, how many tokens it read or wrote, whether that was all of the text, and the masks that were on."""
        real = int(self.trace.queries.keep[self.row].sum())
        padding = f" + {len(self.labels) - real:,} padding" if real < len(self.labels) else ""
        each = [(" and ".join(names) or "no", len(names) > 1, where) for where, names in self.masks_by_scope.items()]
        masks = ", ".join(f"{names} {'masks' if several else 'mask'}{where}" for names, several, where in each)
        positions = "" if self.masks.positions == "counted" else f", positions by {self.masks.positions}"
        would_continue = self.trace.queries.would_continue
        longer = " of a longer text" if self.cut else ""
        if would_continue and would_continue[self.row]:
            longer += f" ({real - self.model.given:,} written, which would go on)"
        into = "" if self.by == "tokens" else f" merged into {self.by}"
        return f"{self.model.name}, {token_count(real)}{padding}{longer}{into}, {masks}{positions}"

    @property
    def query(self) -> int:  # type: ignore[override]
        groups = merge_groups(self.trace, self.row, self.by)
        return self.last if groups is None else int(np.searchsorted(groups[0], self.last, side="right")) - 1

    @property
    def last(self) -> int:  # type: ignore[override]
        """The position of the row's last real token."""
        return self.trace.queries.real(self.row).stop - 1

    @property
    def across(self) -> bool:  # type: ignore[override]
        return self.trace.name == "cross"

    @property
    def numbers(self) -> Sequence[int]:  # type: ignore[override]
        return self.model.describe().layer_numbers.get(self.trace.name, ())

    @cached_property
    def survey(self) -> Survey:
        """All heads in one pass: thumbnails, and shares of attention on later tokens and on padding."""
        return survey(self.trace, self.row, by=self.by)

    def notes(self) -> list[list[str]]:
        """Return each head's share of attention on later tokens and on padding, in words, [L][H]."""
        return leak_notes(self.survey.future, self.survey.padding)

    def measures(self) -> dict[str, np.ndarray]:
        """Return each head's patterns, in shares of its attention, 0 to 1, [L,H]: "previous", "first", "induction" …"""
        return self.survey.shares

    def marks(self) -> dict[str, np.ndarray]:
        return self.survey.marked

    def attention(self, name: str) -> "Run":
        """Return this run, showing another of its attentions: "encoder", "decoder" or "cross" of an encoder-decoder."""
        return self._shown(trace=self.trace.select(name))

    def merged(self, by: By) -> Self:
        if by == self.by:
            return self
        merge_groups(self.trace, self.row, by)  # raises for any other value
        return self._shown(by=by)

    def _shown(self, **otherwise: Any) -> Self:
        """Return a copy with these fields changed, which keeps losses that were computed."""
        found = replace(self, **otherwise)
        vars(found).update({name: value for name, value in vars(self).items() if name == "_losses"})
        return found

    def under(self, masks: MaskSpec | dict[str, Any]) -> "Run":
        """Run the same texts again under other masks. Raises ValueError for masks that do not fit the model."""
        spec = spec_of(self.model.standard, masks)
        expect_text(spec, self.trace.batch)
        trace = self.model.run(self.trace.batch, spec).select(self.trace.name)
        return replace(self, trace=trace, weights=NetworkState(self.network, weights_in))

    def served(
        self, chunks: Sequence[int] | int = 8, prefix: int = 0, align: str = "bottom-right", second: str = ""
    ) -> CallsComparison:
        """Compare this run with the row read in several calls with a cache: after a prefix of `prefix` tokens, in
        chunks of these sizes, or all of one size. align: "bottom-right", or the wrong "top-left" or "none". second:
        another continuation of the cached prefix. Raises ValueError for sizes that do not fit, and for a model that
        cannot be run so."""
        alone = self._alone
        tokens = alone.ids.shape[1]
        sizes = int(chunks) if isinstance(chunks, Integral) else whole_numbers("chunk sizes as whole numbers", chunks)
        ends = ends_of(tokens, sizes, index("prefix", prefix, tokens))
        if not isinstance(second, str):
            raise ValueError(f"expected a second continuation as a text, got {second!r:.80}")
        if second and not prefix:
            raise ValueError("expected a cached prefix of at least 1 token for a second continuation")
        return compare_calls(self.model, alone, self.masks, ends, align, second)

    def tree(
        self,
        parents: Sequence[int] | Sequence[str],
        tokens: Sequence[int] | None = None,
        order: str = "depth",
        positions: str = "depth",
    ) -> DraftTree:
        """Verify a tree of draft tokens after the row, in one call under the model's standard masks.

        parents: of each node, −1 for the row's last token; tokens: their ids, by default the model's own top-k; or, in
        place of both, the branches as texts. order: of the nodes in the call, "depth" or "breadth" first. positions: by
        "depth", or by "row", a known bug.
        Raises ValueError for an invalid tree or one that does not fit.
        """
        ids = self._alone.ids[0].tolist()
        nodes = items("parents or texts as a list", parents)
        if nodes and all(isinstance(one, str) for one in nodes):
            if tokens is not None:
                raise ValueError("expected texts without tokens, got both")
            nodes, tokens = typed_tree(self.model, nodes)
        elif tokens is not None:
            tokens = [index("token", one, self.model.num_ids) for one in items("tokens as ids", tokens)]
        return verify_tree(self.model, ids, nodes, tokens, order=order, positions=positions)

    def packed(self, documents: str | Sequence[int] = ".") -> PackedLosses:
        """Split the row into documents, by what they end with or how many tokens each has, and compare their losses
        packed, under four conventions, and alone. Raises ValueError for fewer than two documents."""
        return pack(self.model, self._alone, documents)

    def streamed(self, tokens: int = 512, window: int = 60, sinks: int = 4, step: int = 8) -> StreamedText:
        """Read the row's text, repeated if it is shorter, with a cache of sinks + window tokens from which the others
        are dropped, with and without the sinks; `step` tokens per call. Raises ValueError for sizes that do not fit,
        and for a model that cannot be run so."""
        tokens = index("number of tokens", tokens, MAX_STREAMED + 1, first=2)
        alone = self._alone
        given = alone.ids[0].tolist()  # repeated, if they were not read from a text
        text = alone.texts[0] if alone.texts else ""
        ids = ids_of(self.model, text, tokens, alone.rendered) if text else (given * tokens)[:tokens]
        return stream(self.model, ids, window=window, sinks=sinks, step=step)

    @property
    def _alone(self) -> TokenBatch:
        """The row without padding. Raises ValueError for a model that predicts no next token from earlier ones."""
        self._expect_same_weights()
        check_predicts(self.model)
        return self.trace.batch.without_padding(self.row)

    @property
    def masks(self) -> MaskSpec:
        return self.trace.spec

    @property
    def text(self) -> str:
        """The text of the row that was read; of an encoder-decoder the source before the target. Raises ValueError for
        a run on ids or pixels."""
        if not self._batches[0].texts:
            raise ValueError("expected a run on a text, got one on ids or pixels: see run.ids and run.labels")
        return "\n→ ".join(one.read(self.row) for one in self._batches)

    @property
    def cut(self) -> str:
        """The end of the row's text that was not read because it has too many tokens; "" if all of it was read."""
        return "\n→ ".join(one.cut[self.row] for one in self._batches if one.cut and one.cut[self.row])

    @property
    def _batches(self) -> list[TokenBatch]:
        return [one for one in (self.trace.batch.source, self.trace.batch) if one is not None]

    @property
    def ids(self) -> np.ndarray:
        """The ids of the row's tokens without padding, int64 [N]. `run(ids=…)` reads the same."""
        return self.trace.queries.without_padding(self.row).ids[0].cpu().numpy().copy()

    @property
    def labels(self) -> list[str]:  # type: ignore[override]
        """The label of each query token."""
        return list(self.trace.queries.pieces[self.row])

    @property
    def losses(self) -> np.ndarray:
        """The losses, float32 [T], in nats: -log of the probability of each token, NaN where there is none, as for the
        first. Raises ValueError for a model that predicts no next token, one trained since the run, and an encoder's
        attention."""
        self._expect_target("losses")
        return self._losses.copy()

    @cached_property
    def _losses(self) -> np.ndarray:
        self._expect_predictions()
        return self.trace.losses(self.row).numpy()

    def next_token(self, query: int | None = None, most: int = TOP) -> Predicted:
        """Return the `most` most likely tokens after the one at position query, by default the row's last one. Raises
        ValueError for a position that does not exist, fewer than one token, a model that predicts none, and an
        encoder's attention."""
        self._expect_predictions()
        self._expect_target("next token")
        labels = self.trace.batch.pieces[self.row]
        here = self.trace.batch.real(self.row).stop - 1 if query is None else index("query", query, len(labels))
        most = index("number of tokens", most, MAX_PREDICTED + 1, first=1)
        found = self.model.ranked(self.trace.next_token(self.row, here), most)
        return predicted(f"after {labels[here]}", [Candidate(*one) for one in found])

    def numpy(self) -> np.ndarray:
        """Return every weight, float32 [L,H,Q,K], which is large for a long text."""
        groups, weights = merge_groups(self.trace, self.row, self.by), every_weight(self.trace, self.row)
        return weights if groups is None else merged_weights(weights, *groups)

    def view(self, layer: int, head: int) -> HeadView:
        self._check(layer, head)
        self._expect_room()
        return merged_head(self.trace, self.row, self.masks, layer, head, self.by)

    def shown_view(self, layer: int, head: int) -> HeadView:
        """Return the whole head or, for a longer text, the part around the last token."""
        if not self._is_long or self.by != "tokens":
            return self.view(layer, head)
        self._check(layer, head)
        rows, columns = (window(0, size, self.last, MAX_TOKENS) for size in self._size)
        return head_part(self.trace, self.row, self.masks, layer, head, rows, columns, MAX_TOKENS)

    @property
    def size(self) -> tuple[int, int]:
        return self._size if self.by == "tokens" else super().size

    @property
    def first_token(self) -> int:
        begin, groups = self.trace.keys.real(self.row).start, merge_groups(self.trace, self.row, self.by)
        return begin if groups is None else int(np.searchsorted(groups[1], begin, side="right")) - 1

    def head_part(self, layer: int, head: int, queries: tuple[int, int], keys: tuple[int, int]) -> HeadPicture:
        """Show the exact weights of some queries and keys of a head, each from a position up to, but not including,
        another; for a text of any length. Raises ValueError for more than 256 of either, or none."""
        self._check(layer, head)
        rows, columns = (_part(*one) for one in zip((queries, keys), self._size, strict=True))
        view = head_part(self.trace, self.row, self.masks, layer, head, rows, columns, most=MAX_TOKENS)
        query, title = min(max(self.last, rows[0]), rows[1] - 1), self.merged("tokens").title
        return head_picture("heatmap", [self.named(layer, head)], [view], query, title, across=self.across)

    @property
    def _size(self) -> tuple[int, int]:
        return len(self.labels), len(self.trace.keys.pieces[self.row])

    @property
    def _is_long(self) -> bool:
        return math.prod(self._size) > MAX_WHOLE

    def _expect_room(self) -> None:
        if self._is_long:
            queries, keys = self._size
            whole = "run" if self.by == "tokens" else 'run.merged("tokens")'
            raise ValueError(
                f"expected a text of at most {math.isqrt(MAX_WHOLE):,} tokens for a whole head, got {queries:,} × "
                f"{keys:,}: run.head_part(layer, head, queries=(0, 256), keys=(0, 256)) gives a part, {whole}.heads() "
                "all heads at a glance"
            )

    def mask(self, layer: int, head: int) -> Picture:
        """Show all masks of one head together; its numbers are bool [Q,K], True = may attend. The widget can be drawn
        on; its trait `drawn` is {"strokes": …, …} or None, which the next run takes: model.run(text, masks={"drawn":
        widget.drawn["strokes"]}). Raises ValueError for cross-attention."""
        self._check(layer, head)
        self._expect_room()
        if self.across:
            raise ValueError("expected the attention of a text to itself, got cross")
        allowed = self.trace.allowed(layer, self.row, head=head).numpy()
        view = mask_view(self.trace, self.row, self.masks, layer, head)
        queries, keys = allowed.shape
        begin, end = part = window(0, queries, self.last, MAX_CELLS)
        cells = "cell" if allowed.sum() == 1 else "cells"
        size = f"{query_count(queries)} × {key_count(keys)}, {allowed.sum():,} {cells} allowed"
        note = f"Shown are tokens {begin}–{end - 1} of {queries:,}." if end - begin < queries else ""

        def canvas(most: int = MAX_STROKES) -> Canvas:
            return Canvas("mask", canvas_packet(view, rows=part, columns=part, epoch=0, number=0, most=most))

        # the page takes no strokes, because it cannot run the model
        line = f"mask of {self.named(layer, head)}: {size}"
        axes = {"query": range(queries), "key": range(keys)}
        return Picture(line, view, allowed, lambda: page(line, [canvas(0), tag("p", note)]), canvas, axes=axes)

    def live(self, layer: int, head: int) -> LiveHead:
        """Return live widgets: a head's mask to draw on, and the head under it. Needs `pip install anywidget`."""
        return LiveHead(self, layer, head)

    def pictures(self, heads: Sequence[tuple[int, int]]) -> list[tuple[str, str]]:
        """Return, for a report, what each head attends to in the run's image, as a sentence and an image's URI."""
        return []

    def glance(self) -> tuple[np.ndarray, np.ndarray]:
        return self.survey.thumbnails, self.survey.blocked

    def difference(self, other: "Run") -> Picture:
        """Subtract another run on the same tokens, merged as here, from every weight; its numbers are the largest
        change in each head, float32 [L,H]. Raises ValueError for other tokens."""
        if not isinstance(other, Run):
            raise ValueError(f"expected another run, got {type(other).__name__}")
        other = other.merged(self.by)
        found = changes(self.trace, other.trace, self.row, other.row, self.by)
        layer, head = (int(index) for index in np.unravel_index(found.largest.argmax(), found.largest.shape))
        every, parts = (run.all_heads([(layer, head)]) for run in (self, other))
        drawn = replace(
            every,
            thumbnails=found.thumbnails,
            blocked=every.blocked & parts.blocked,
            heads={index: changed(view, parts.heads[index]) for index, view in every.heads.items()},
            notes=(),
            measures={},
        )
        words = loss_words(self._losses, other._losses, self._predicting) if self.predicts and other.predicts else ""
        change = f"{drawn.names[layer][head]} changes most, a weight by {weight_text(found.largest[layer, head])}"
        titles = [self.title, other.title]
        if titles[0] == titles[1]:  # titles have no parameters, nor masks of an encoder-decoder's other attentions
            specs = [json.loads(run.masks.to_json()) for run in (self, other)]
            names = [name for name, value in specs[0].items() if value != specs[1][name]]
            titles = [", ".join([titles[0], *(f"{name} {one[name]!s:.40}" for name in names)]) for one in specs]
        line = f"{' − '.join(titles)}: {change if found.largest.any() else 'no weight differs'}"
        html = partial(explorer_page, line, drawn, kind=CHANGES, absent=ABSENT, above=f"<p>{words}</p>")
        axes = self.axes_of(found.largest)
        return Picture(line, drawn, found.largest, html, lambda: Canvas("overview", drawn.overview()), axes=axes)

    def leak(self) -> LeakPicture:
        """Show the share of each head's attention on later tokens and on padding."""
        future, padding = self.survey.future, self.survey.padding
        names = [[self.named(layer, head) for head in range(future.shape[1])] for layer in range(len(future))]
        each = [(name, mean_share(shares)) for name, shares in (("later tokens", future), ("padding", padding))]
        parts = [f"{percent(share)} of all attention on {name}" for name, share in each if not math.isnan(share)]
        line = f"{self.merged('tokens').title}: {', '.join(parts) or 'no token attends to anything'}"
        numbers = np.stack([future, padding])
        axes = {"on": ["later tokens", "padding"], **self.axes_of(future)}
        grids = [leak_grid(future, names, "later tokens"), leak_grid(padding, names, "padding")]
        html = partial(page, line, grids if parts else [tag("p", line)])
        return LeakPicture(line, numbers, numbers, html, axes=axes, future=future, padding=padding, names=names)

    def tokens_of(self, text: str | None) -> tuple[Tensor, list[str]]:
        """Return the ids and labels of a text, or of the beginning of this row."""
        ids, labels = super().tokens_of(text) or tokens_in(self.trace.batch, self.row)
        return (ids, labels) if text else (ids[:MAX_CHECKED], labels[:MAX_CHECKED])

    def first_head(self) -> tuple[int, int]:
        return catalog.first_head(self.model) if self.trace.name == self.trace.attentions[0] else (0, 0)

    def __repr__(self) -> str:
        return self.title


def _part(given: tuple[int, int], size: int) -> tuple[int, int]:
    """Return a range [begin, end) of `size` positions. Raises ValueError for anything else, or more than MAX_TOKENS."""
    pair = whole_numbers("a pair of positions", given)
    if len(pair) != 2 or not 0 <= pair[0] < pair[1] <= min(size, pair[0] + MAX_TOKENS):
        raise ValueError(f"expected 1 to {MAX_TOKENS} positions from 0 to {size}, got {given!r:.80}")
    return pair[0], pair[1]
