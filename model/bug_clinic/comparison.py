"""Comparison of a bug with the right version, in one layer of a run: every law measured on both, and the loss.

Sizes: H heads, T positions, D head width.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import AttentionStages
from model.base import Model
from model.blocks import Block, positions_of
from model.bug_clinic.bugs import BY_KEY, Attention, AttentionCase, Bug, Crash, repeated
from model.bug_clinic.laws import LAWS, AttentionTrial, Verdict
from model.kv_cache import network_of
from model.mask_kinds import LOCAL
from model.masks import MaskSpec
from model.text import TokenBatch, rows_of, shortened
from model.trace import LayerRecord, Trace
from model.transformer import Transformer

MAX_ROWS = 8
MAX_TOKENS = 48  # of a row; all of them, and what is added, have room for a label
# Makes a row longer than the user's, so that theirs gets padding.
ADDED = "and then they all went home again."  # not shown but as a text that models read


@dataclass(frozen=True)
class Text:
    """What the page uses of a text: its lines; how many were cut to MAX_TOKENS; whether the last line was added.
    left_out: lines beyond MAX_ROWS."""

    lines: tuple[str, ...]
    cut: int
    added: bool
    left_out: int = 0


def prepare_text(model: Model, text: str) -> Text:
    """Cut lines to MAX_TOKENS, and add one if all are equally long: bugs with padding need some. A line that the model
    cannot tokenize stays as it is."""
    lines, left_out = rows_of(text, MAX_ROWS)
    max_tokens = min(MAX_TOKENS, model.context - 1)
    short = []
    for line in lines:
        with suppress(ValueError):  # a line that the model cannot tokenize stays
            line = shortened(line, max_tokens, lambda some: _read(model, some))
        short.append(line)
    added = len({_length(model, line) for line in short}) < 2
    rows = [*short, f"{short[0].rstrip()} {ADDED}"] if added and short else short
    return Text(tuple(rows), sum(map(str.__ne__, lines, short)), added, left_out)


def targets_for(model: Model, text: Text) -> list[str] | None:
    """Return an encoder-decoder's targets: its decoder, which has both masks, reads the same lines."""
    return list(text.lines) if model.kind == "encoder-decoder" else None


def attention_for(model: Model) -> str:
    """Return the model's attention that can have a causal and a padding mask: a decoder's, if it has one."""
    return "decoder" if "decoder" in model.attentions else model.attentions[0]


def masks_for(model: Model) -> MaskSpec:
    """Return the model's own masks plus the causal one, which most bugs are about."""
    return model.standard.replace(causal=True, padding=True)


def _length(model: Model, line: str) -> int:
    with suppress(ValueError):
        return _read(model, [line]).ids.shape[1]
    return 0  # the model cannot tokenize it


def _read(model: Model, lines: list[str]) -> TokenBatch:
    return model.encode(lines, "right", lines if model.kind == "encoder-decoder" else None)


Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class BugComparison:
    """One row [H,T,..] of one layer, float32, with the bug and right. wrong is None if PyTorch refused to compute it,
    with its message in `error`. exact: False if something stands in for the layer's inputs."""

    wrong: AttentionStages | None
    right: AttentionStages
    error: str
    exact: bool

    def change(self, part: Literal["output", "weights"] = "output") -> Tensor:
        """Return |wrong - right| of the output [H,T,D] or weights [H,T,T], infinite where only one is finite."""
        right: Tensor = getattr(self.right, part)
        if self.wrong is None:
            return torch.full_like(right, math.inf)
        wrong: Tensor = getattr(self.wrong, part)
        either = wrong.isfinite() | right.isfinite()
        return (wrong - right).abs().nan_to_num(math.inf, math.inf).where(either, 0)

    def shows_in_heatmap(self) -> bool:
        """Whether a heatmap of any head shows the bug."""
        return self.wrong is not None and bool((self.change("weights") > 0).any())

    def sees_target(self, real: slice) -> Tensor:
        """Return for each of n real tokens but the last whether any head gives the next one weight: bool [n - 1]."""
        if self.wrong is None:
            return torch.zeros(0, dtype=torch.bool)
        ahead: Tensor = self.wrong.weights[:, real, real].diagonal(1, -2, -1)
        return (ahead > 0).any(0)


@dataclass(frozen=True, eq=False)
class BugTrial:
    """A trial of a bug, and of the right version. buggy: the whole run with it, if it is in other layers too."""

    wrong: AttentionTrial
    right: AttentionTrial
    buggy: Trace | None


READ_INPUTS = ("unprojected", "one-module")  # bugs that need more than a layer's queries, keys and values
# the latest result of each run; freed with the run
LatestResult = WeakKeyDictionary[Trace, tuple[tuple[Hashable, ...], Any]]
_right_of: LatestResult = WeakKeyDictionary()
_trial_of: LatestResult = WeakKeyDictionary()


def right_of(model: Model, trace: Trace, dtype: torch.dtype, layer: int, row: int) -> AttentionTrial:
    """Return what bugs of this dtype are compared with in one layer and row of a run; computed once for all of them."""

    def make() -> AttentionTrial:
        return AttentionTrial(AttentionCase.stages, plain_case_of(trace, layer, row).to(dtype))

    return _cached(_right_of, trace, (layer, row, dtype), make)


def trial_of(model: Model, trace: Trace, bug: Bug, layer: int, row: int) -> BugTrial:
    """Return the trial of a bug in one layer and row of a run under masks_for(model); computed once. All earlier layers
    are right, except for a bug that is in them: then its queries and keys are those of a run with it."""

    def make() -> BugTrial:
        right, buggy = right_of(model, trace, bug.dtype, layer, row), None
        case = case_of(model, trace, layer, row).to(bug.dtype) if bug.key in READ_INPUTS else right.case
        case = replace(case, ahead=bug.ahead)
        if bug.first_layer and layer > 0 and trace.num_layers > 1 and model.standard.causal:
            later = tuple(range(1, trace.num_layers))
            padding_alone = masks_for(model).replace(causal=False, layers=later, **dict.fromkeys(LOCAL, False))
            buggy = model.run(trace.batch, padding_alone).select(trace.name)
            case = replace(case_of(model, buggy, layer, row), allowed=right.case.allowed)
        return BugTrial(
            AttentionTrial(bug.function if layer >= bug.first_layer else AttentionCase.stages, case), right, buggy
        )

    return _cached(_trial_of, trace, (bug.key, layer, row), make)


@torch.inference_mode()
def compare(model: Model, trace: Trace, row: int, key: str, layer: int) -> BugComparison:
    """Compare the bug of this key with the right version in one row and layer of a run under masks_for(model)."""
    bug = BY_KEY[key]
    trial, wrong, error = trial_of(model, trace, bug, layer, row), None, ""
    special = {"one-module": False, "unprojected": network_of(model) is not None}
    # layer < 2: layer 1's input comes from the right layer 0
    exact = special.get(bug.key, not bug.first_layer or layer < 2 or bool(model.standard.causal))
    try:
        wrong = row_of(trial.wrong.stages)
    except Crash as crash:
        error = str(crash)
    return BugComparison(wrong, row_of(trial.right.stages), error, exact)


def _cached(newest: LatestResult, trace: Trace, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
    found = newest.get(trace)
    if found is None or found[0] != key:
        found = newest[trace] = key, make()
    return found[1]


def row_of(stages: AttentionStages) -> AttentionStages:
    """Return the only row of a batch, [1,H,..] -> [H,..], float32."""
    return AttentionStages(**{name: part[0].float() for name, part in vars(stages).items()})


@dataclass(frozen=True)
class Examination:
    """The examination of a bug. verdicts: for each law by its key the bug's and the right version's. loss: the mean in
    nats with the bug and without, NaN if not available."""

    verdicts: dict[str, tuple[Verdict, Verdict]]
    loss: tuple[float, float]

    def broken(self, law: str) -> bool:
        return self.verdicts[law][0].broken


@torch.inference_mode()
def examine(model: Model, trace: Trace, row: int, key: str, layer: int) -> Examination:
    """Examine the bug of this key on one row of a run under masks_for(model), its laws in one layer."""
    trial = trial_of(model, trace, BY_KEY[key], layer, row)
    verdicts = {law: (trial.wrong.verdicts[law], trial.right.verdicts[law]) for law in LAWS}
    return Examination(verdicts, _losses(model, trace, BY_KEY[key], row, trial.buggy))


def _losses(model: Model, trace: Trace, bug: Bug, row: int, buggy: Trace | None) -> tuple[float, float]:
    """Return the mean loss of the row with the bug in every layer that has it, and without, in nats."""
    nothing = (math.nan, math.nan)
    if model.kind == "encoder" or not model.predicts or not model.standard.causal:
        return nothing
    right, real = trace.losses(row).nanmean().item(), trace.batch.real(row)
    if not bug.ahead:  # the loss of each position's own token, which the model has seen
        logits = trace.readout(trace.states[row, real]).float()
        return F.cross_entropy(logits.cpu(), trace.batch.ids[row, real]).item(), right
    if buggy is not None:
        return buggy.losses(row).nanmean().item(), right
    network = network_of(model)
    if network is None:
        return nothing
    try:
        with_it = rerun(network, trace, row, lambda layer: bug.on if layer >= bug.first_layer else AttentionCase.stages)
    except Crash:  # PyTorch's own message is shown elsewhere
        return math.nan, right
    states = trace.states.clone()
    states[row] = with_it[0]
    losses = replace(trace, states=states).losses(row)
    return losses[real][1:].mean().item(), right  # mean() keeps NaN: a run with NaN has no loss


@torch.inference_mode()
def plain_case_of(trace: Trace, layer: int, row: int) -> AttentionCase:
    """Return one row of one layer of a run as a case for the laws, float32, without the layer's inputs."""
    record, one = trace.layers[layer], slice(row, row + 1)
    terms = record.terms_in(one, slice(None), slice(None))
    bias, sinks = (None if term is None else term.cpu() for term in (terms.bias, terms.sinks))
    return AttentionCase(
        *_projected(record, one),
        trace.allowed(layer, row)[None, None],
        trace.keys.keep[one].cpu(),
        record.scale,
        replace(terms, bias=bias, sinks=sinks),
        masks=_repeated(trace, layer, row),
        order=trace.allowed(layer, row, trace.spec.replace(padding=False))[None, None],
    )


@torch.inference_mode()
def case_of(model: Model, trace: Trace, layer: int, row: int) -> AttentionCase:
    """Return `plain_case_of` with the layer's inputs, for which our own Transformer runs again up to the layer."""
    case, one = plain_case_of(trace, layer, row), slice(row, row + 1)
    network, other = network_of(model), other_layer(layer, trace.num_layers)
    if network is not None:
        before = next(islice(streams(network, trace, row, lambda _: AttentionCase.stages), layer, None))
        block = _blocks(network)[layer]
        read = block.attention_norm(before)
        return replace(case, inputs=block.attention.split(read).cpu(), others=_by_another(network, other, read))
    return case if other is None else replace(case, others=_projected(trace.layers[other], one))


def _projected(record: LayerRecord, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    return record.q[rows].float().cpu(), record.k[rows].float().cpu(), record.v[rows].float().cpu()


def other_layer(layer: int, layers: int) -> int | None:
    """Return the layer whose module stands in for a shared one: the next layer, for the last the one before."""
    if layers == 1:
        return None
    return layer + 1 if layer + 1 < layers else layer - 1


@torch.inference_mode()
def rerun(network: Transformer, trace: Trace, row: int, attention_of: Callable[[int], Attention]) -> Tensor:
    """Run one row of the trace once more, each layer with attention_of(layer), and return its states before the logits,
    [1,T,W]."""
    *_, last = streams(network, trace, row, attention_of)
    states: Tensor = network.norm(last)
    return states


def streams(network: Transformer, trace: Trace, row: int, attention_of: Callable[[int], Attention]) -> Iterator[Tensor]:
    """Yield the residual stream of `rerun`, before each layer and after the last: [1,T,W]. Call in inference mode."""
    ids, keep = trace.batch.ids[row : row + 1], trace.batch.keep[row : row + 1]
    device = trace.states.device
    x = network.token_embedding(ids.to(device)) + network.position_embedding(positions_of(keep).to(device))
    yield x
    for layer, block in enumerate(_blocks(network)):
        attention, read = attention_of(layer), block.attention_norm(x)
        heads = _on_cpu(block.attention.project(read, read, read))  # the bugs run on the CPU
        case = AttentionCase(*heads, trace.allowed(layer, row)[None, None], keep)
        if attention is not AttentionCase.stages:  # doubles the time, and only bugs need it
            others = _by_another(network, other_layer(layer, trace.num_layers), read)
            masks = _repeated(trace, layer, row)
            case = replace(case, inputs=block.attention.split(read).cpu(), others=others, masks=masks)
        x = block.feed_forward(x + block.attention.merge(case.run(attention).output.to(device)))
        yield x


def _by_another(network: Transformer, layer: int | None, read: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return q, k and v that another layer's module makes of the same inputs."""
    return None if layer is None else _on_cpu(_blocks(network)[layer].attention.project(read, read, read))


def _on_cpu(parts: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (part.cpu() for part in parts)
    return q, k, v


def _repeated(trace: Trace, layer: int, row: int) -> Tensor:
    """Return the masks of the row's heads, bool [1,H,T,T], if the batch's are repeated in the wrong order."""
    masks = torch.stack([trace.allowed(layer, other) for other in range(len(trace.keys.keep))])[:, None]
    return repeated(masks, trace.num_heads)[row : row + 1]


def _blocks(network: Transformer) -> list[Block]:
    return cast(list[Block], network.blocks)
