"""Activation patching: run B with some activations taken from run A, and what that changes in one prediction of B.

Heads are patched before the output projection, so a whole layer's heads are its attention output; a position is patched
in the residual stream that enters a layer. Every later layer sees what comes of it (Wang et al. 2022, "Interpretability
in the Wild"; Heimersheim and Nanda 2024, "How to use and interpret activation patching"). Both runs may have masks of
their own; cutting a single query from a single key ("attention knockout") is a mask that is drawn, and needs no patch.
Sizes: N rows of a batch, L layers, H heads, T positions, P of them, W width, D head width, V vocabulary.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.base import HeadEdit, Model, StreamEdit
from model.errors import NotSupported
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


def check(model: Model, a: Trace, row_a: int, b: Trace, row_b: int) -> None:
    """Raises ValueError for texts of different lengths, NotSupported for a model without next tokens."""
    if model.kind != "decoder" or not model.predicts or model.attentions != ("self",):
        raise NotSupported(msg(DECODERS))
    lengths = [len(range(*trace.batch.real(row).indices(10**9))) for trace, row in ((a, row_a), (b, row_b))]
    if lengths[0] != lengths[1]:
        raise ValueError(msg(LENGTHS, a=lengths[0], b=lengths[1]))


def measured(model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked) -> tuple[float, float]:
    """What is measured in A and in B as they are. Raises as check."""
    check(model, a, row_a, b, row_b)
    there = asked.query - b.batch.real(row_b).start + a.batch.real(row_a).start
    return float(asked.of(logits_at(a, row_a, there))), float(asked.of(logits_at(b, row_b, asked.query)))


@torch.inference_mode()
def head_effects(
    model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked, layer: int
) -> np.ndarray:
    """By how much the measured value of B rises with each head of a layer taken from A, and, last, with all of them:
    float32 [H+1]."""
    check(model, a, row_a, b, row_b)
    heads = range(b.num_heads)
    each: list[list[Head]] = [[(layer, head)] for head in heads]
    each.append([(layer, head) for head in heads])
    given = {layer: heads_given(a, row_a, layer)}
    return _rises(model, b, row_b, asked, len(each), lambda rows: _edit(each[rows], given, b.batch.real(row_b)))


@torch.inference_mode()
def position_effects(
    model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked, layer: int, begin: int, end: int
) -> np.ndarray:
    """The same with the stream that enters a layer taken from A at each position of B from begin up to, without, end:
    float32 [P]. layer: counted over all of the network's."""
    check(model, a, row_a, b, row_b)
    given = _stream(model, a, row_a, layer)
    real, places = b.batch.real(row_b), range(begin, end)

    def edit(rows: slice) -> StreamEdit:
        return _stream_edit([[(layer, place)] for place in places[rows]], {layer: given}, real)

    return _rises(model, b, row_b, asked, len(places), lambda _: None, edit)


@torch.inference_mode()
def path_effects(
    model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked, receiver: Head, into: Input, layer: int
) -> np.ndarray:
    """By how much the measured value of B rises with what each head of a layer gives in A on the paths from it into q,
    k or v of one head (`receiver`) of a later layer, over the residual stream and MLPs, all other heads as in B:
    float32 [H]. k and v that several heads share change for the receiver alone."""
    check(model, a, row_a, b, row_b)
    real, (later, head) = b.batch.real(row_b), receiver
    given = heads_given(a, row_a, layer)
    frozen = {number: heads_given(b, row_b, number) for number in range(layer + 1, later)}
    runs = range(b.num_heads)

    def edit(rows: slice) -> HeadEdit:
        some = [[(layer, sender)] for sender in runs[rows]]
        sent = _edit(some, {layer: given}, real)

        def on_the_way(attention: str, at: int, record: LayerRecord, output: Tensor) -> Tensor:
            if at not in frozen:
                return sent(attention, at, record, output)
            output = output.clone()
            output[:, :, real] = frozen[at].to(output)
            return output

        batch = b.batch.rows([row_b] * len(some))
        arrived = getattr(model.run(batch, b.spec, on_the_way).layers[later], into)

        def at_receiver(_: str, at: int, record: LayerRecord, output: Tensor) -> Tensor:
            if at != later:
                return output
            output, changed = output.clone(), replace(record, **{into: arrived})
            for row in range(len(output)):
                output[row, head] = _outputs(changed, b, row, slice(head, head + 1), slice(0, output.shape[2]))[0]
            return output

        return at_receiver

    return _rises(model, b, row_b, asked, len(runs), edit)


@torch.inference_mode()
def patched(
    model: Model, a: Trace, row_a: int, b: Trace, row_b: int, asked: Asked, patches: Sequence[Patch]
) -> Patched:
    """One run of B with all of these patches together. Raises ValueError for one that is not there."""
    check(model, a, row_a, b, row_b)
    real, every = b.batch.real(row_b), range(b.num_heads)
    for one in patches:
        _check_patch(one, b, real)
    whole = {one.layer for one in patches if one.kind == "layer"}
    heads = {(one.layer, one.number) for one in patches if one.kind == "head"}
    heads |= {(layer, head) for layer in whole for head in every}
    places = {(one.layer, one.number) for one in patches if one.kind == "position"}
    given = {layer: heads_given(a, row_a, layer) for layer in {layer for layer, _ in heads}}
    streams = {layer: _stream(model, a, row_a, layer) for layer in {layer for layer, _ in places}}
    entering = _stream_edit([places], streams, real) if places else None
    logits = _logits(model, b, row_b, asked.query, 1, _edit([heads], given, real), entering)[0]
    top = logits.softmax(-1).topk(min(TOP, len(logits)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return Patched(float(asked.of(logits)), tuple((model.label(token), chance) for token, chance in pairs))


def heads_given(trace: Trace, row: int, layer: int) -> Tensor:
    """What each head of a layer gives at the row's real tokens, before the output projection: float32 [H,P,D]."""
    return _outputs(trace.layers[layer], trace, row, slice(None), trace.batch.real(row))


def _outputs(record: LayerRecord, trace: Trace, row: int, heads: slice, queries: slice) -> Tensor:
    begins = range(queries.start, queries.stop, BLOCK)
    blocks = [slice(begin, min(begin + BLOCK, queries.stop)) for begin in begins]
    return torch.cat([record.stages(trace.spec, row, heads, block).output for block in blocks], 1)


def _stream(model: Model, trace: Trace, row: int, layer: int) -> Tensor:
    """What enters a layer at the row's real tokens, [P,W]."""
    return model.residuals(trace.batch.rows([row]), trace.spec).streams[layer][0, trace.batch.real(row)]


def _edit(each: Sequence[Collection[Head]], given: Mapping[int, Tensor], real: slice) -> HeadEdit:
    """each: the heads that are patched in each row of the batch."""

    def edit(attention: str, layer: int, record: LayerRecord, output: Tensor) -> Tensor:
        """output [N,H,T,D]"""
        here = [(row, head) for row, heads in enumerate(each) for at, head in heads if at == layer]
        if not here:
            return output
        output = output.clone()
        for row, head in here:
            output[row, head, real] = given[layer][head].to(output)
        return output

    return edit


def _stream_edit(each: Sequence[Collection[tuple[int, int]]], given: Mapping[int, Tensor], real: slice) -> StreamEdit:
    """each: the (layer, position) that are patched in each row of the batch."""

    def edit(layer: int, stream: Tensor) -> Tensor:
        """stream [N,T,W]"""
        here = [(row, place) for row, places in enumerate(each) for at, place in places if at == layer]
        if not here:
            return stream
        stream = stream.clone()
        for row, place in here:
            stream[row, place] = given[layer][place - real.start].to(stream)
        return stream

    return edit


def _rises(
    model: Model,
    b: Trace,
    row: int,
    asked: Asked,
    runs: int,
    edit: Callable[[slice], HeadEdit | None],
    entering: Callable[[slice], StreamEdit | None] = lambda _: None,
) -> np.ndarray:
    """Of each of so many patched runs of B, which are rows of one batch, as many at a time as the model takes."""
    before = asked.of(logits_at(b, row, asked.query))
    step, after = max(model.most_cells // b.batch.ids.shape[1], 1), []
    for begin in range(0, runs, step):
        some = slice(begin, min(begin + step, runs))
        after.append(asked.of(_logits(model, b, row, asked.query, some.stop - begin, edit(some), entering(some))))
    found: np.ndarray = (torch.cat(after) - before).float().numpy()
    return found


def _logits(
    model: Model, b: Trace, row: int, query: int, runs: int, edit: HeadEdit | None, entering: StreamEdit | None
) -> Tensor:
    """[N,V] after the query."""
    batch = b.batch.rows([row] * runs)
    if entering is None:
        states = model.run(batch, b.spec, edit).states
    else:
        found = model.residuals(batch, b.spec, edit, entering)
        states = found.final(found.streams[-1])
    return model.readout(states[:, query]).float().cpu()


def _check_patch(one: Patch, b: Trace, real: slice) -> None:
    inside = one.number in range(real.start, real.stop) if one.kind == "position" else one.number < b.num_heads
    if not inside or not 0 <= one.layer < b.num_layers:
        raise ValueError(
            msg(
                "expected heads of {layers} × {heads}, and positions {first} to {last}, got {patch}",
                layers=b.num_layers, heads=b.num_heads, first=real.start, last=real.stop - 1,
                patch=f"{one.kind} {one.layer}.{one.number}",
            )
        )  # fmt: skip
