"""Activation patching: run B with some activations taken from run A, and what that changes in one prediction of B.

Heads are patched before the output projection, so a whole layer's heads are its attention output; a position is patched
in the residual stream that enters a layer. Every later layer sees what comes of it (Wang et al. 2022, "Interpretability
in the Wild"; Heimersheim and Nanda 2024, "How to use and interpret activation patching"). Both runs may have masks of
their own; cutting a single query from a single key ("attention knockout") is a mask that is drawn, and needs no patch.
Sizes: N rows of a batch, H heads, T positions, P real ones, W width, D head width, V vocabulary.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.base import HeadEdit, Model, StreamEdit
from model.errors import NotSupported, index
from model.heads.ablation import TOP
from model.sampling import logits_at
from model.trace import LayerRecord, Trace

Head = tuple[int, int]  # layer, head
Input = Literal["q", "k", "v"]
BLOCK = 128  # queries of which the heads' outputs are computed at a time
LENGTHS = N_(
    "Activation patching needs as many tokens in A as in B: A has {a}, B has {b}. Change one of the two texts until "
    "they agree"
)
DECODERS = N_("Activation patching is for models with one stack that predict the next token")
MOST_PAIRS, MOST_PAIRS_BYTES = 64, 200_000
PAIRS = N_(
    "expected a CSV file with the columns a, b, answer and instead_of, and 1 to {most} pairs of texts in at most "
    "{kilobytes} kB"
)


@dataclass(frozen=True)
class Asked:
    """What is measured after the token at position query of B, or at the same place of A: the logit of answer less that
    of instead_of or, without one, the log-probability of answer, which is its loss with the other sign (nats)."""

    query: int
    answer: int
    instead_of: int | None = None

    def of(self, logits: Tensor) -> Tensor:
        """[..,V] -> [..]"""
        if self.instead_of is None:
            return logits.log_softmax(-1)[..., self.answer]
        return logits[..., self.answer] - logits[..., self.instead_of]


@dataclass(frozen=True)
class Patch:
    """What is taken from A: a head, a layer's attention output ("layer"), or the residual stream that enters a layer at
    a position of B. number: of the head or position."""

    kind: Literal["head", "layer", "position"]
    layer: int
    number: int = 0


@dataclass(frozen=True, eq=False)
class Patched:
    """What was measured after patching; candidates: the likeliest next tokens then, label and probability (0 to 1)."""

    value: float
    candidates: tuple[tuple[str, float], ...]


def likeliest(model: Model, a: Trace, row_a: int, b: Trace, row_b: int, query: int) -> tuple[int, int]:
    """What A says after the place of the query of B, and what B says there, or would next if that is the same. Raises
    ValueError for texts of different lengths, NotSupported for a model without next tokens; so do all below."""
    _check(model, a, row_a, b, row_b)
    answer = int(logits_at(a, row_a, _place_in_a(a, row_a, b, row_b, query)).argmax())
    others = logits_at(b, row_b, query).topk(2).indices.tolist()
    return answer, others[1] if others[0] == answer else others[0]


def measured(model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked) -> tuple[float, float]:
    """What is measured in A and in B as they are."""
    _check(model, a, row_a, b, row_b)
    there = _place_in_a(a, row_a, b, row_b, asked.query)
    return float(asked.of(logits_at(a, row_a, there))), float(asked.of(logits_at(b, row_b, asked.query)))


@torch.inference_mode()
def effects(
    model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked, each: Sequence[Sequence[Patch]]
) -> np.ndarray:
    """By how much the measured value of B rises in each of N runs, with these patches together: float32 [N]."""
    logits = _patched(model, a, row_a, b, row_b, asked.query, each)
    found: np.ndarray = (asked.of(logits) - asked.of(logits_at(b, row_b, asked.query))).numpy()
    return found


@torch.inference_mode()
def patched(
    model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked, patches: Sequence[Patch]
) -> Patched:
    """One run of B with all of these patches."""
    logits = _patched(model, a, row_a, b, row_b, asked.query, [patches])[0]
    top = logits.softmax(-1).topk(min(TOP, len(logits)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return Patched(float(asked.of(logits)), tuple((model.label(token), chance) for token, chance in pairs))


@torch.inference_mode()
def path_effects(
    model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked, receiver: Head, into: Input, layer: int
) -> np.ndarray:
    """By how much the measured value of B rises with what each head of a layer gives in A on the paths from it into q,
    k or v of one head (`receiver`) of a later layer, over the residual stream and MLPs, all other heads as in B:
    float32 [H]. k and v that several heads share change for the receiver alone."""
    _check(model, a, row_a, b, row_b)
    real, (later, head) = b.batch.real(row_b), receiver
    given = _heads_given(a, row_a, layer)
    frozen = {number: _heads_given(b, row_b, number) for number in range(layer + 1, later)}

    def edit(rows: slice) -> HeadEdit:
        batch = b.batch.rows([row_b] * (rows.stop - rows.start))

        def send(_: str, at: int, record: LayerRecord, output: Tensor) -> Tensor:
            output = output.clone()
            if at == layer:
                for row, sender in enumerate(range(rows.start, rows.stop)):
                    output[row, sender, real] = given[sender].to(output)
            elif at in frozen:
                output[:, :, real] = frozen[at].to(output)
            return output

        arrived = getattr(model.run(batch, b.spec, send).layers[later], into)

        def receive(_: str, at: int, record: LayerRecord, output: Tensor) -> Tensor:
            if at != later:
                return output
            output, changed = output.clone(), replace(record, **{into: arrived})
            for row in range(len(output)):
                output[row, head] = _outputs(changed, b, row, slice(head, head + 1), slice(0, output.shape[2]))[0]
            return output

        return receive

    logits = _runs(model, b, row_b, asked.query, b.num_heads, lambda rows: (edit(rows), None))
    found: np.ndarray = (asked.of(logits) - asked.of(logits_at(b, row_b, asked.query))).numpy()
    return found


def _check(model: Model, a: Trace, row_a: int, b: Trace, row_b: int) -> None:
    if model.kind != "decoder" or not model.predicts or model.attentions != ("self",):
        raise NotSupported(msg(DECODERS))
    lengths = [int(trace.batch.keep[row].sum()) for trace, row in ((a, row_a), (b, row_b))]
    if lengths[0] != lengths[1]:
        raise ValueError(msg(LENGTHS, a=lengths[0], b=lengths[1]))


def _place_in_a(a: Trace, row_a: int, b: Trace, row_b: int, query: int) -> int:
    return int(query - b.batch.real(row_b).start + a.batch.real(row_a).start)


def _patched(
    model: Model, a: Trace, row_a: int, b: Trace, row_b: int, query: int, each: Sequence[Sequence[Patch]]
) -> Tensor:
    """The logits [N,V] after the query in each of N runs of B. Raises ValueError for a patch that is not there."""
    _check(model, a, row_a, b, row_b)
    real, every = b.batch.real(row_b), {one for patches in each for one in patches}
    for one in every:
        index("layer", one.layer, b.num_layers)
        if one.kind == "position":
            index("position", one.number, real.stop, first=real.start)
        else:
            index("head", one.number, b.num_heads)
    given = {layer: _heads_given(a, row_a, layer) for layer in {one.layer for one in every if one.kind != "position"}}
    layers = {one.layer for one in every if one.kind == "position"}
    streams = model.residuals(a.batch.rows([row_a]), a.spec).streams if layers else ()
    taken = {layer: streams[layer][0, a.batch.real(row_a)] for layer in layers}

    def edits(rows: slice) -> tuple[HeadEdit, StreamEdit | None]:
        some = [(row, astuple(one)) for row, patches in enumerate(each[rows]) for one in patches]

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
                if kind == "position" and at == layer:
                    entering[row, position] = taken[layer][position - real.start].to(entering)
            return entering

        return heads, stream if layers else None

    return _runs(model, b, row_b, query, len(each), edits)


def _runs(
    model: Model,
    b: Trace,
    row: int,
    query: int,
    runs: int,
    edits: Callable[[slice], tuple[HeadEdit, StreamEdit | None]],
) -> Tensor:
    """The logits [N,V] after the query in each of so many runs of B, as many at a time as the model takes."""
    step, found = max(model.most_cells // b.batch.ids.shape[1], 1), []
    for begin in range(0, runs, step):
        some = slice(begin, min(begin + step, runs))
        batch, (heads, stream) = b.batch.rows([row] * (some.stop - begin)), edits(some)
        if stream is None:
            states = model.run(batch, b.spec, heads).states
        else:
            read = model.residuals(batch, b.spec, heads, stream)
            states = read.final(read.streams[-1])
        found.append(model.readout(states[:, query]).float().cpu())
    return torch.cat(found)


def _heads_given(trace: Trace, row: int, layer: int) -> Tensor:
    """What each head of a layer gives at the row's real tokens, before the output projection: float32 [H,P,D]."""
    return _outputs(trace.layers[layer], trace, row, slice(None), trace.batch.real(row))


def _outputs(record: LayerRecord, trace: Trace, row: int, heads: slice, queries: slice) -> Tensor:
    blocks = (slice(begin, min(begin + BLOCK, queries.stop)) for begin in range(queries.start, queries.stop, BLOCK))
    return torch.cat([record.stages(trace.spec, row, heads, block).output for block in blocks], 1)


@dataclass(frozen=True)
class TextPair:
    """Two texts of as many tokens, the token that A should say next, and the one that B should."""

    a: str
    b: str
    answer: str
    instead_of: str


def read_pairs(data: bytes) -> list[TextPair]:
    """A CSV file with these columns. Raises ValueError for what is none, or too large."""
    try:
        rows = list(csv.DictReader(io.StringIO(data[:MOST_PAIRS_BYTES].decode("utf-8-sig"))))
        pairs = [TextPair(row["a"], row["b"], row["answer"], row["instead_of"]) for row in rows]
    except (UnicodeDecodeError, csv.Error, KeyError):
        pairs = []
    whole = all((part or "").strip() for pair in pairs for part in astuple(pair))
    if not whole or len(data) > MOST_PAIRS_BYTES or not 0 < len(pairs) <= MOST_PAIRS:
        raise ValueError(msg(PAIRS, most=MOST_PAIRS, kilobytes=MOST_PAIRS_BYTES // 1000))
    return pairs
