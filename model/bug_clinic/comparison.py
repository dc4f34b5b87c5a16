"""A bug beside its right version, in one layer of a run, and what it breaks: every law measured on both, and the loss.

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
# Makes a row longer than the reader's, so that theirs gets padding.
ADDED = "and then they all went home again."  # not shown but as a text that models read


@dataclass(frozen=True)
class Text:
    """What the page reads of a text: its lines; how many were cut to MAX_TOKENS; whether the last line was added.
    left_out: lines beyond MAX_ROWS."""

    lines: tuple[str, ...]
    cut: int
    added: bool
    left_out: int = 0


def prepare_text(model: Model, text: str) -> Text:
    """Lines of at most MAX_TOKENS, and one more where all are equally long: bugs with padding need some. Raises
    ValueError for a text that the model has no tokens for."""
    lines, left_out = rows_of(text, MAX_ROWS)
    most = min(MAX_TOKENS, model.context - 1)
    short = []
    for line in lines:
        with suppress(ValueError):  # a line that the model has no tokens for stays
            line = shortened(line, most, lambda some: _read(model, some))
        short.append(line)
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
    return model.standard.replace(causal=True, padding=True)


def _length(model: Model, line: str) -> int:
    with suppress(ValueError):
        return _read(model, [line]).ids.shape[1]
    return 0  # the model has no tokens for it


def _read(model: Model, lines: list[str]) -> TokenBatch:
    return model.encode(lines, "right", lines if model.kind == "encoder-decoder" else None)


Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class BugComparison:
    """One row [H,T,..] of one layer, float32, with the bug and right. wrong is None where PyTorch refused to compute
    it, with the words in `error`. exact: False where something stands in for what the layer reads."""

    wrong: AttentionStages | None
    right: AttentionStages
    error: str
    exact: bool

    def change(self, part: Literal["output", "weights"] = "output") -> Tensor:
        """|wrong - right| of the output [H,T,D] or weights [H,T,T], infinite where only one of them is finite."""
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
        """bool [n - 1]: whether each of n real tokens but the last gives the next one any weight, in any head."""
        if self.wrong is None:
            return torch.zeros(0, dtype=torch.bool)
        ahead: Tensor = self.wrong.weights[:, real, real].diagonal(1, -2, -1)
        return (ahead > 0).any(0)


@dataclass(frozen=True, eq=False)
class BugTrial:
    """A bug tried, and the right version. buggy: the whole run with it, where it lies in other layers too."""

    tried: AttentionTrial
    right: AttentionTrial
    buggy: Trace | None


READ_INPUTS = ("unprojected", "one-module")  # bugs that need more than a layer's queries, keys and values
# of a run what was asked for last; it goes with the run
LatestResult = WeakKeyDictionary[Trace, tuple[tuple[Hashable, ...], Any]]
_right_of: LatestResult = WeakKeyDictionary()
_trial_of: LatestResult = WeakKeyDictionary()


def right_of(model: Model, trace: Trace, dtype: torch.dtype, layer: int, row: int) -> AttentionTrial:
    """What bugs of this number type are held against in one layer and row of a run; made once for all of them."""

    def make() -> AttentionTrial:
        return AttentionTrial(AttentionCase.stages, plain_case_of(trace, layer, row).to(dtype))

    return _cached(_right_of, trace, (layer, row, dtype), make)


def trial_of(model: Model, trace: Trace, bug: Bug, layer: int, row: int) -> BugTrial:
    """Made once for all that is asked of the bug in one layer and row of a run under masks_for(model). All layers
    before are right, but for a bug that lies in them: then its queries and keys are those of a run with it."""

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
    """The bug of this key beside the right version in one row and layer of a run under masks_for(model)."""
    bug = BY_KEY[key]
    trial, wrong, error = trial_of(model, trace, bug, layer, row), None, ""
    special = {"one-module": False, "unprojected": network_of(model) is not None}
    # layer < 2: layer 1 reads what the right layer 0 made
    exact = special.get(bug.key, not bug.first_layer or layer < 2 or bool(model.standard.causal))
    try:
        wrong = row_of(trial.tried.stages)
    except Crash as crash:
        error = str(crash)
    return BugComparison(wrong, row_of(trial.right.stages), error, exact)


def _cached(newest: LatestResult, trace: Trace, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
    found = newest.get(trace)
    if found is None or found[0] != key:
        found = newest[trace] = key, make()
    return found[1]


def row_of(stages: AttentionStages) -> AttentionStages:
    """The only row of a batch, [1,H,..] -> [H,..], float32."""
    return AttentionStages(**{name: part[0].float() for name, part in vars(stages).items()})


@dataclass(frozen=True)
class Examination:
    """verdicts: for each law by its key the bug's and the right version's. loss: the mean in nats with the bug and
    without, NaN where that is not known."""

    verdicts: dict[str, tuple[Verdict, Verdict]]
    loss: tuple[float, float]

    def broken(self, law: str) -> bool:
        return self.verdicts[law][0].broken


@torch.inference_mode()
def examine(model: Model, trace: Trace, row: int, key: str, layer: int) -> Examination:
    """The bug of this key on one row of a run under masks_for(model), its laws in one layer."""
    trial = trial_of(model, trace, BY_KEY[key], layer, row)
    verdicts = {law: (trial.tried.verdicts[law], trial.right.verdicts[law]) for law in LAWS}
    return Examination(verdicts, _losses(model, trace, BY_KEY[key], row, trial.buggy))


def _losses(model: Model, trace: Trace, bug: Bug, row: int, buggy: Trace | None) -> tuple[float, float]:
    """The mean loss of the row with the bug in every layer that has it, and without, in nats."""
    nothing = (math.nan, math.nan)
    if model.kind == "encoder" or not model.predicts or not model.standard.causal:
        return nothing
    right, real = trace.losses(row).nanmean().item(), trace.batch.real(row)
    if not bug.ahead:  # the loss of the token that stands at each position, which the model has seen
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
    return losses[real][1:].mean().item(), right  # NaN stays NaN here: a run without a number has no loss


@torch.inference_mode()
def plain_case_of(trace: Trace, layer: int, row: int) -> AttentionCase:
    """One row of one layer of a run as a case for the laws, float32, without what the layer read."""
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
    """The same with what the layer read, for which our own Transformer runs again up to the layer."""
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
    """The layer whose module stands in for one that two attentions share: the next, of the last the one before."""
    if layers == 1:
        return None
    return layer + 1 if layer + 1 < layers else layer - 1


@torch.inference_mode()
def rerun(network: Transformer, trace: Trace, row: int, attention_of: Callable[[int], Attention]) -> Tensor:
    """[1,T,W], the states before the logits of the traced run of one row once more, each layer with the attention that
    attention_of(layer) gives."""
    *_, last = streams(network, trace, row, attention_of)
    states: Tensor = network.norm(last)
    return states


def streams(network: Transformer, trace: Trace, row: int, attention_of: Callable[[int], Attention]) -> Iterator[Tensor]:
    """[1,T,W]: what that run adds to, before each layer and after the last. Call in inference mode."""
    ids, keep = trace.batch.ids[row : row + 1], trace.batch.keep[row : row + 1]
    device = trace.states.device
    x = network.token_embedding(ids.to(device)) + network.position_embedding(positions_of(keep).to(device))
    yield x
    for layer, block in enumerate(_blocks(network)):
        attention, read = attention_of(layer), block.attention_norm(x)
        heads = _on_cpu(block.attention.project(read, read, read))  # where the bugs are
        case = AttentionCase(*heads, trace.allowed(layer, row)[None, None], keep)
        if attention is not AttentionCase.stages:  # the rest takes as long again, and only bugs need it
            others = _by_another(network, other_layer(layer, trace.num_layers), read)
            masks = _repeated(trace, layer, row)
            case = replace(case, inputs=block.attention.split(read).cpu(), others=others, masks=masks)
        x = block.feed_forward(x + block.attention.merge(case.run(attention).output.to(device)))
        yield x


def _by_another(network: Transformer, layer: int | None, read: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """q, k and v that another layer's module makes of what is read."""
    return None if layer is None else _on_cpu(_blocks(network)[layer].attention.project(read, read, read))


def _on_cpu(parts: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (part.cpu() for part in parts)
    return q, k, v


def _repeated(trace: Trace, layer: int, row: int) -> Tensor:
    """The masks of the row's heads, bool [1,H,T,T], where the batch's are repeated in the wrong order."""
    masks = torch.stack([trace.allowed(layer, other) for other in range(len(trace.keys.keep))])[:, None]
    return repeated(masks, trace.num_heads)[row : row + 1]


def _blocks(network: Transformer) -> list[Block]:
    return cast(list[Block], network.blocks)
