"""A bug examined on a reader's text: the wrong attention beside the right one, in one layer and in the whole model.

Sizes: H heads, T positions, D head width.
"""

import math
from dataclasses import dataclass, replace
from typing import Unpack
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import AttentionStages, attention_stages
from model.base import Model
from model.bug_clinic.bug import Bug, Options
from model.bug_clinic.case import Attention, Case, Crash
from model.bug_clinic.laws import LAWS, Verdict, judge
from model.bug_clinic.lines import masks_for
from model.bug_clinic.rerun import case_of, rerun
from model.bug_clinic.tried import Tried
from model.kv_cache import network_of
from model.masks import MaskSpec
from model.trace import Trace


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

    def change(self) -> Tensor:
        """|wrong - right| of the output [H,T,D], infinite where the bug gives no finite number."""
        return self._difference("output")

    def change_of_weights(self) -> Tensor:
        """|wrong - right| of the weights [H,T,T], infinite where the bug gives no finite number."""
        return self._difference("weights")

    def is_seen(self) -> bool:
        """Whether a heatmap of any head shows the bug."""
        return self.wrong is not None and bool((self.change_of_weights() > 0).any())

    def has_nan(self) -> bool:
        """Whether a weight with the bug is no number."""
        return self.wrong is not None and bool(self.wrong.weights.isnan().any())

    def broken(self, law: str) -> bool:
        """Whether the bug breaks the law of this key."""
        return self.verdicts[law][0].broken

    def nbytes(self) -> int:
        """The memory it takes, in bytes."""
        kept = [stages for stages in (self.wrong, self.right) if stages is not None]
        return sum(4 * part.numel() for stages in kept for part in vars(stages).values())

    def _difference(self, part: str) -> Tensor:
        right = getattr(self.right, part)
        if self.wrong is None:
            return torch.full_like(right, math.inf)
        return (getattr(self.wrong, part) - right).abs().nan_to_num(math.inf)


@dataclass(frozen=True, eq=False)
class Right:
    """The right version alone: what every bug of one number type is held against. verdicts: for each law by its key."""

    case: Case
    stages: AttentionStages
    verdicts: dict[str, Verdict]


_right_of: WeakKeyDictionary[Trace, tuple[tuple[int, int, torch.dtype], Right]] = WeakKeyDictionary()


def right_of(model: Model, trace: Trace, layer: int, row: int, dtype: torch.dtype) -> Right:
    """Made once for the bugs that are looked at in one layer and row of a run. It goes with the run, or once others are
    asked for."""
    key = layer, row, dtype
    made, right = _right_of.get(trace, (None, None))
    if right is None or made != key:
        case = case_of(model, trace, layer, row).to(dtype)
        tried = Tried(attention_stages, case)
        verdicts = {name: judge(law, tried) for name, law in LAWS.items()}
        right = Right(case, _row(tried.stages), verdicts)
        _right_of[trace] = key, right
    return right


@torch.inference_mode()
def examine(model: Model, trace: Trace, bug: Bug, layer: int, row: int) -> Examination:
    """The bug on one row of a run under masks_for(model).

    All layers before are right, but for a bug that lies in them: then its queries and keys are those of a run with it.
    """
    right = right_of(model, trace, layer, row, bug.dtype)
    case = right.case
    wrong_case, buggy = bug.case(case), None
    if bug.first_layer and layer > 0 and trace.num_layers > 1 and model.standard.causal:
        buggy = model.run(trace.batch, _forgetful(model, trace.num_layers)).select(trace.name)
        wrong_case = replace(case_of(model, buggy, layer, row), allowed=case.allowed)
    attention = bug.function if layer >= bug.first_layer else attention_stages
    tried, wrong, error = Tried(attention, wrong_case), None, ""
    try:
        wrong = _row(tried.stages)
    except Crash as crash:
        error = str(crash)
    return Examination(
        wrong,
        right.stages,
        error,
        {key: (judge(law, tried), right.verdicts[key]) for key, law in LAWS.items()},
        _losses(model, trace, bug, row, buggy),
        exact=_is_exact(model, bug, layer),
    )


def in_precision(attention: Attention, dtype: torch.dtype) -> Attention:
    """The same attention computed in dtype, float32 in and out."""
    if dtype == torch.float32:
        return attention

    def run(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]) -> AttentionStages:
        stages = attention(q.to(dtype), k.to(dtype), v.to(dtype), allowed, **options)
        return AttentionStages(**{name: part.float() for name, part in vars(stages).items()})

    return run


@torch.inference_mode()
def unshifted_losses(trace: Trace, row: int) -> Tensor:
    """-log p(token | the text up to and with that very token), in nats, one for each of the row's real tokens."""
    here = trace.batch.real(row)
    logits = trace.readout(trace.states[row, here]).float()
    return F.cross_entropy(logits, trace.batch.ids[row, here], reduction="none")


def _losses(model: Model, trace: Trace, bug: Bug, row: int, buggy: Trace | None) -> tuple[float, float]:
    """The mean loss of the row with the bug in every layer that has it, and without, in nats."""
    nothing = (math.nan, math.nan)
    if model.kind == "encoder" or not model.predicts or not model.standard.causal:
        return nothing
    right = trace.losses(row).nanmean().item()
    if not bug.ahead:
        return unshifted_losses(trace, row).mean().item(), right
    if buggy is not None:
        return buggy.losses(row).nanmean().item(), right
    network = network_of(model)
    if network is None:
        return nothing
    attention = in_precision(bug.function, bug.dtype)
    try:
        run = rerun(network, trace, row, lambda layer: attention if layer >= bug.first_layer else attention_stages)
    except Crash:  # what PyTorch says is shown elsewhere
        return math.nan, right
    states = trace.states.clone()
    states[row] = run.states[0]
    losses = replace(trace, states=states).losses(row)
    real = trace.batch.real(row)
    with_bug = losses[real][1:].mean().item()  # NaN stays NaN here: a run without a number has no loss
    return with_bug, right


def _is_exact(model: Model, bug: Bug, layer: int) -> bool:
    if bug.key == "one-module":
        return False
    if bug.key == "unprojected":
        return network_of(model) is not None
    return not bug.first_layer or layer < 2 or model.standard.causal  # layer 1 reads what the right layer 0 made


def _forgetful(model: Model, layers: int) -> MaskSpec:
    """The causal mask in the first layer only."""
    return replace(masks_for(model), causal=False, layers=tuple(range(1, layers)))


def _row(stages: AttentionStages) -> AttentionStages:
    """The only row of a batch, [1,H,..] -> [H,..], float32."""
    return AttentionStages(**{name: part[0].float() for name, part in vars(stages).items()})
