"""Activation patching: run B with some activations taken from run A, and measure the change in one prediction of B.

Heads are patched before the output projection (a gate between the two, as in Qwen3-Next, stays B's), positions in the
residual stream that enters a layer; every later layer is computed from the result (Wang et al. 2022, "Interpretability
in the Wild"; Heimersheim and Nanda 2024, "How to use and interpret activation patching"). Both runs may have masks of
their own. Sizes: N rows of a batch, H heads, T positions, P real ones, W width, D head width, V vocabulary.
"""

import csv
import io
from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.base import HeadEdit, Model, StreamEdit
from model.errors import NotSupported, index
from model.heads.ablation import TOP, Head
from model.sampling import logits_at
from model.text import TokenBatch
from model.trace import LayerRecord, Trace

Input = Literal["q", "k", "v"]
BLOCK = 128  # queries whose head outputs are computed at a time
LENGTHS = N_(
    "Activation patching needs the same number of tokens in A and B: A has {a}, B has {b}. Change one of the two "
    "texts until they agree"
)
DECODERS = N_(
    "Activation patching is for models with one stack that predict the next token: choose a decoder with its "
    "language-model head"
)
MAX_PAIRS, MAX_PAIRS_BYTES = 64, 200_000
PAIRS = N_(
    "expected a CSV file with the columns a, b, answer and instead_of, and 1 to {most} pairs of texts in at most "
    "{kilobytes} kB"
)


@dataclass(frozen=True)
class PatchMetric:
    """What is measured after position query of B, or the corresponding position of A: the logit of answer minus that of
    instead_of or, without one, the log-probability of answer, which is its loss with the other sign (nats)."""

    query: int
    answer: int
    instead_of: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for the same token twice: their difference is 0 whatever is patched."""
        if self.instead_of == self.answer:
            raise ValueError(msg("expected two answers whose first tokens differ, got the same twice"))

    def of(self, logits: Tensor) -> Tensor:
        """Compute the metric: logits [..,V] -> [..]."""
        if self.instead_of is None:
            return logits.log_softmax(-1)[..., self.answer]
        return logits[..., self.answer] - logits[..., self.instead_of]


@dataclass(frozen=True)
class Patch:
    """What is taken from A: a head's output, a layer's attention output ("layer"), or the residual stream that enters a
    layer at a position of B. number: of the head or position."""

    kind: Literal["head", "layer", "position"]
    layer: int
    number: int = 0


Edits = tuple[HeadEdit, StreamEdit | None]


@dataclass(frozen=True, eq=False)
class PatchPair:
    """A row of run A and one of run B, which is patched. Raises ValueError for texts of different lengths, NotSupported
    for a model that does not predict next tokens."""

    model: Model
    a: Trace
    row_a: int
    b: Trace
    row_b: int

    def __post_init__(self) -> None:
        if self.model.kind != "decoder" or not self.model.predicts or self.model.attentions != ("self",):
            raise NotSupported(msg(DECODERS))
        lengths = [
            len(trace.batch.without_padding(row).pieces[0])
            for trace, row in ((self.a, self.row_a), (self.b, self.row_b))
        ]
        if lengths[0] != lengths[1]:
            raise ValueError(msg(LENGTHS, a=lengths[0], b=lengths[1]))

    def likeliest(self, query: int) -> tuple[int, int]:
        """Return A's most likely token after the position of query, and B's, or B's second if that is the same."""
        answer = int(self._logits_of_a(query).argmax())
        others = logits_at(self.b, self.row_b, query).topk(2).indices.tolist()
        return answer, others[1] if others[0] == answer else others[0]

    def measured(self, metric: PatchMetric) -> tuple[float, float]:
        """Return the metric in A and in B, unpatched."""
        in_a, in_b = self._logits_of_a(metric.query), logits_at(self.b, self.row_b, metric.query)
        return float(metric.of(in_a)), float(metric.of(in_b))

    @torch.inference_mode()
    def effects(self, metric: PatchMetric, each: Sequence[Sequence[Patch]]) -> np.ndarray:
        """Return by how much the metric of B rises in each of N runs with these patches together: float32 [N]. Raises
        ValueError for a patch that does not exist."""
        return self._rises(metric, self._patched(metric.query, each))

    @torch.inference_mode()
    def patched(self, metric: PatchMetric, patches: Sequence[Patch]) -> tuple[float, tuple[tuple[str, float], ...]]:
        """Return the metric in one run of B with all of these patches, and its most likely next tokens: label and
        probability, 0 to 1."""
        logits = self._patched(metric.query, [patches])[0]
        return float(metric.of(logits)), self.model.ranked(logits.softmax(-1), TOP)

    @torch.inference_mode()
    def path_effects(self, metric: PatchMetric, receiver: Head, into: Input, layer: int) -> np.ndarray:
        """Return by how much the metric of B rises if each head of a layer gives its output from A on the paths from it
        into q, k or v of one head (`receiver`) of a later layer, over the residual stream and MLPs, all other heads as
        in B: float32 [H]. k and v that several heads share change for the receiver alone."""
        (later, head), real = receiver, self._real
        given = self._heads_given(self.a, self.row_a, {layer})[layer]
        frozen = self._heads_given(self.b, self.row_b, range(layer + 1, later))

        def edits(rows: slice) -> Edits:
            def send(_: str, at: int, record: LayerRecord, output: Tensor) -> Tensor:
                output = output.clone()
                if at == layer:
                    for row, sender in enumerate(range(rows.start, rows.stop)):
                        output[row, sender, real] = given[sender].to(output)
                elif at in frozen:
                    output[:, :, real] = frozen[at].to(output)
                return output

            arrived = getattr(self.model.run(self._batch(rows), self.b.spec, send).layers[later], into)

            def receive(_: str, at: int, record: LayerRecord, output: Tensor) -> Tensor:
                if at != later:
                    return output
                output, changed = output.clone(), replace(record, **{into: arrived})
                for row in range(len(output)):
                    one, whole = slice(head, head + 1), slice(0, output.shape[2])
                    now, before = (_outputs(of, self.b, row, one, whole)[0] for of in (changed, record))
                    output[row, head] += (now - before).to(output)  # exactly 0 if nothing changed, in 16 bits too
                return output

            return receive, None

        return self._rises(metric, self._runs(metric.query, self.b.num_heads, edits))

    @property
    def _real(self) -> slice:
        return self.b.batch.real(self.row_b)

    def _logits_of_a(self, query: int) -> Tensor:
        """Return A's logits [V] at the position of a query of B."""
        return logits_at(self.a, self.row_a, query - self._real.start + self.a.batch.real(self.row_a).start)

    def _rises(self, metric: PatchMetric, logits: Tensor) -> np.ndarray:
        """Return by how much the metric rises: logits [N,V] -> [N]."""
        return (metric.of(logits) - metric.of(logits_at(self.b, self.row_b, metric.query))).numpy()

    def _patched(self, query: int, each: Sequence[Sequence[Patch]]) -> Tensor:
        """Return the logits [N,V] after the query in each of N runs of B."""
        real, every = self._real, {patch for patches in each for patch in patches}
        for patch in every:
            index("layer", patch.layer, self.b.num_layers)
            if patch.kind == "position":
                index("position", patch.number, real.stop, first=real.start)
            else:
                index("head", patch.number, self.b.num_heads)
        given = self._heads_given(self.a, self.row_a, {patch.layer for patch in every if patch.kind != "position"})
        number_of = self.model.describe().layer_number  # in the network, which may have layers without attention
        numbers = {patch.layer: number_of("self", patch.layer) for patch in every if patch.kind == "position"}
        alone = self.a.batch.rows([self.row_a])
        streams = self.model.residuals(alone, self.a.spec).streams if numbers else ()
        taken = {number: streams[number][0, alone.real(0)] for number in numbers.values()}

        def edits(rows: slice) -> Edits:
            some = [(row, astuple(patch)) for row, patches in enumerate(each[rows]) for patch in patches]

            def heads(_: str, layer: int, record: LayerRecord, output: Tensor) -> Tensor:
                output = output.clone()
                for row, (kind, at, number) in some:
                    if kind != "position" and at == layer:
                        which = slice(None) if kind == "layer" else slice(number, number + 1)
                        output[row, which, real] = given[layer][which].to(output)
                return output

            def stream(layer: int, entering: Tensor) -> Tensor:
                entering = entering.clone()
                for row, (kind, at, position) in some:
                    if kind == "position" and numbers[at] == layer:
                        entering[row, position] = taken[layer][position - real.start].to(entering)
                return entering

            return heads, stream if numbers else None

        return self._runs(query, len(each), edits)

    def _heads_given(self, trace: Trace, row: int, layers: Collection[int]) -> dict[int, Tensor]:
        """Return the outputs of these layers' heads at the row's real tokens, before the output projection, as the run
        itself computes them: by layer [H,P,D]."""
        given, real = {}, trace.batch.real(row)

        def keep(_: str, layer: int, record: LayerRecord, output: Tensor) -> Tensor:
            if layer in layers:
                given[layer] = output[0, :, real].clone()
            return output

        if layers:
            self.model.run(trace.batch.rows([row]), trace.spec, keep)
        return given

    def _batch(self, rows: slice) -> TokenBatch:
        """Return a batch of B's row, once for each run."""
        return self.b.batch.rows([self.row_b] * (rows.stop - rows.start))

    def _runs(self, query: int, runs: int, edits: Callable[[slice], Edits]) -> Tensor:
        """Return the logits [N,V] after the query in each of `runs` runs of B, as many at a time as the model takes."""
        step, found = max(self.model.most_cells // self.b.batch.ids.shape[1], 1), []
        for begin in range(0, runs, step):
            some = slice(begin, min(begin + step, runs))
            heads, stream = edits(some)
            if stream is None:
                states = self.model.run(self._batch(some), self.b.spec, heads).states
            else:
                read = self.model.residuals(self._batch(some), self.b.spec, heads, stream)
                states = read.final(read.streams[-1])
            found.append(self.model.readout(states[:, query]).float().cpu())
        return torch.cat(found)


def run_patch_pair(model: Model, a: Trace, row_a: int, b: Trace, row_b: int, method: str, *arguments: Any) -> Any:
    """Call a method of PatchPair: a job's entry point."""
    return getattr(PatchPair(model, a, row_a, b, row_b), method)(*arguments)


def _outputs(record: LayerRecord, trace: Trace, row: int, heads: slice, queries: slice) -> Tensor:
    blocks = (slice(begin, min(begin + BLOCK, queries.stop)) for begin in range(queries.start, queries.stop, BLOCK))
    return torch.cat([record.stages(trace.spec, row, heads, block).output for block in blocks], 1)


def read_pairs(data: bytes) -> list[dict[str, str]]:
    """Read pairs from a CSV file: two texts of as many tokens, a and b, the answer expected from A, and instead_of,
    that of B. Raises ValueError for anything else, and for a file that is too large."""
    try:
        rows = list(csv.DictReader(io.StringIO(data[:MAX_PAIRS_BYTES].decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error):
        rows = []
    cells = [(row.get(name) or "").strip() for row in rows for name in ("a", "b", "answer", "instead_of")]
    whole = all(len(cell.splitlines()) == 1 for cell in cells)
    if not whole or len(data) > MAX_PAIRS_BYTES or not 0 < len(rows) <= MAX_PAIRS:
        raise ValueError(msg(PAIRS, most=MAX_PAIRS, kilobytes=MAX_PAIRS_BYTES // 1000))
    return rows
