"""A bug examined on a reader's text: the wrong attention beside the right one, in one layer and in the whole model.

Sizes: B rows, L layers, H heads, T positions, D head width, W model width.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Unpack, cast

import torch
from torch import Tensor

from model.attention import AttentionStages, attention_stages
from model.base import Model
from model.bug_clinic.bugs import Bug, Options, as_shown
from model.bug_clinic.laws import LAWS, Attention, Case, Verdict, judge
from model.kv_cache import network_of
from model.masks import MaskSpec
from model.text import rows_of
from model.trace import Trace
from model.transformer import Block, Transformer, positions_of

MOST_ROWS = 8
MOST_TOKENS = 48  # of a row; all of them, and what is added, have room for a label
ADDED = "and then they all went home again."  # makes a row longer than the reader's, so that theirs gets padding


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


@dataclass(frozen=True, eq=False)
class Examination:
    """A bug beside its right version, one row [H,T,..] of one layer, float32.

    wrong is None where PyTorch refused to compute it, and `error` says in what words. verdicts: for each law by its key
    the bug's and the right version's. loss: the mean in nats with the bug and without, NaN where that is not known.
    exact: False where what the layer reads could not be had, and something that stands in for it was taken.
    """

    wrong: AttentionStages | None
    right: AttentionStages
    error: str
    verdicts: dict[str, tuple[Verdict, Verdict]]
    loss: tuple[float, float]
    exact: bool

    def difference(self) -> Tensor:
        """|wrong - right| of the output [H,T,D], infinite where the bug gives no finite number."""
        if self.wrong is None:
            return torch.full_like(self.right.output, math.inf)
        return (self.wrong.output - self.right.output).abs().nan_to_num(math.inf)

    def has_nan(self) -> bool:
        """Whether a weight with the bug is no number."""
        return self.wrong is not None and bool(self.wrong.weights.isnan().any())

    def nbytes(self) -> int:
        """The memory it takes, in bytes."""
        kept = [stages for stages in (self.wrong, self.right) if stages is not None]
        return sum(4 * part.numel() for stages in kept for part in vars(stages).values())


@torch.inference_mode()
def examine(model: Model, trace: Trace, bug: Bug, layer: int, row: int) -> Examination:
    """The bug on one row of a run under masks_for(model).

    All layers before are right, but for a bug that lies in them (12): its queries and keys are those of a run with it.
    """
    case = case_of(model, trace, layer, row).to(bug.dtype)
    wrong_case, buggy = case, None
    if bug.first_layer and layer > 0 and trace.num_layers > 1 and model.standard.causal:
        buggy = model.run(trace.batch, _forgetful(model, trace.num_layers)).select(trace.name)
        wrong_case = replace(case_of(model, buggy, layer, row), allowed=case.allowed)
    attention = bug.function if layer >= bug.first_layer else attention_stages
    error = ""
    try:
        wrong = _row(as_shown(bug, wrong_case.run(attention), wrong_case.v))
    except RuntimeError as problem:
        wrong, error = None, str(problem)
    return Examination(
        wrong,
        _row(as_shown(bug, case.run(attention_stages), case.v)),
        error,
        {key: (judge(law, attention, wrong_case), judge(law, attention_stages, case)) for key, law in LAWS.items()},
        _losses(model, trace, bug, row, buggy),
        exact=_is_exact(model, bug, layer),
    )


@torch.inference_mode()
def case_of(model: Model, trace: Trace, layer: int, row: int) -> Case:
    """One row of one layer of a run as a case for the laws, float32."""
    network = network_of(model)
    inputs = None
    if network is not None:
        inputs = _cut(rerun(network, trace, row, lambda _: attention_stages).inputs[layer], network.config.heads)
    record, one = trace.layers[layer], slice(row, row + 1)
    bias = record.terms.bias
    if bias is not None:
        bias = bias[one if len(bias) > 1 else slice(None)].float().cpu()
    sinks = None if record.terms.sinks is None else record.terms.sinks.float().cpu()
    return Case(
        record.q[one].float().cpu(),
        record.k[one].float().cpu(),
        record.v[one].float().cpu(),
        trace.allowed(layer, row)[None, None],
        trace.keys.keep[one].cpu(),
        record.scale,
        replace(record.terms, bias=bias, sinks=sinks),
        inputs,
    )


@dataclass(frozen=True, eq=False)
class Rerun:
    """Our own Transformer's run of one row: states [1,T,W] before the logits, and what each layer's attention reads."""

    states: Tensor
    inputs: list[Tensor]


@torch.inference_mode()
def rerun(network: Transformer, trace: Trace, row: int, attention_of: Callable[[int], Attention]) -> Rerun:
    """The traced run of one row once more, each layer with the attention that attention_of(layer) gives."""
    ids, keep = trace.batch.ids[row : row + 1], trace.batch.keep[row : row + 1]
    x = network.token_embedding(ids) + network.position_embedding(positions_of(keep))  # [1,T,W]
    inputs = []
    for layer, block in enumerate(cast(Iterable[Block], network.blocks)):
        read = block.attention_norm(x)
        inputs.append(read)
        q, k, v = block.attention.project(read, read, read)
        allowed = trace.allowed(layer, row)[None, None]
        case = Case(q, k, v, allowed, keep, inputs=_cut(read, network.config.heads))
        x = block.feed_forward(x + block.attention.merge(case.run(attention_of(layer)).output))
    return Rerun(network.norm(x), inputs)


def in_precision(attention: Attention, dtype: torch.dtype) -> Attention:
    """The same attention computed in dtype, float32 in and out."""
    if dtype == torch.float32:
        return attention

    def run(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]) -> AttentionStages:
        stages = attention(q.to(dtype), k.to(dtype), v.to(dtype), allowed, **options)
        return AttentionStages(**{name: part.float() for name, part in vars(stages).items()})

    return run


def _losses(model: Model, trace: Trace, bug: Bug, row: int, buggy: Trace | None) -> tuple[float, float]:
    """The mean loss of the row with the bug in every layer that has it, and without, in nats."""
    nothing = (math.nan, math.nan)
    if model.kind == "encoder" or not model.predicts or not model.standard.causal:
        return nothing
    right = trace.losses(row).nanmean().item()
    network = network_of(model)
    if buggy is not None:
        return buggy.losses(row).nanmean().item(), right
    if network is None:
        return nothing
    attention = in_precision(bug.function, bug.dtype)
    try:
        run = rerun(network, trace, row, lambda layer: attention if layer >= bug.first_layer else attention_stages)
    except RuntimeError:  # the bug is that PyTorch refuses; what it says is shown elsewhere
        return math.nan, right
    states = trace.states.clone()
    states[row] = run.states[0]
    losses = replace(trace, states=states).losses(row)
    real = trace.batch.real(row)
    with_bug = losses[real][1:].mean().item()  # NaN stays NaN here: a run without a number has no loss
    return with_bug, right


def _is_exact(model: Model, bug: Bug, layer: int) -> bool:
    if bug.key == "unprojected":
        return network_of(model) is not None
    return not bug.first_layer or layer < 2 or model.standard.causal  # layer 1 reads what the right layer 0 made


def _forgetful(model: Model, layers: int) -> MaskSpec:
    """The causal mask in the first layer only."""
    return replace(masks_for(model), causal=False, layers=tuple(range(1, layers)))


def _cut(x: Tensor, heads: int) -> Tensor:
    """[B,T,W] -> [B,H,T,D], the way the projections' outputs are cut."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _row(stages: AttentionStages) -> AttentionStages:
    """The only row of a batch, [1,H,..] -> [H,..], float32."""
    return AttentionStages(**{name: part[0].float() for name, part in vars(stages).items()})


def _length(model: Model, line: str) -> int:
    """How many positions a line takes, 0 where the model has no tokens for it."""
    try:
        return model.encode([line], "right", [line] if model.kind == "encoder-decoder" else None).ids.shape[1]
    except ValueError:
        return 0


def _shortened(model: Model, line: str) -> str:
    """The longest beginning of a line that takes at most MOST_TOKENS positions."""
    most = min(MOST_TOKENS, model.context - 1)
    fits, too_long = 0, min(len(line), 100 * MOST_TOKENS) + 1
    if too_long > len(line) and _length(model, line) <= most:
        return line
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if _length(model, line[:middle]) <= most:
            fits = middle
        else:
            too_long = middle
    return line[:fits]
