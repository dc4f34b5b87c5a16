"""A bug beside its right version: the wrong attention and the right one, in one layer of a run.

Sizes: H heads, T positions, D head width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from model.attention import AttentionStages, attention_stages
from model.base import Model
from model.bug_clinic.bug import Bug
from model.bug_clinic.case import AttentionCase, Crash
from model.bug_clinic.laws import LAWS, Verdict, judge
from model.bug_clinic.lines import masks_for
from model.bug_clinic.rerun import case_of
from model.bug_clinic.tried import Tried
from model.kv_cache import network_of
from model.masks import MaskSpec
from model.trace import Trace

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class BugComparison:
    """One row [H,T,..] of one layer, float32, with the bug and right.

    wrong is None where PyTorch refused to compute it, and `error` says in what words.
    exact: False where what the layer reads could not be had, and something that stands in for it was taken.
    """

    wrong: AttentionStages | None
    right: AttentionStages
    error: str
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

    def _difference(self, part: str) -> Tensor:
        right = getattr(self.right, part)
        if self.wrong is None:
            return torch.full_like(right, math.inf)
        return (getattr(self.wrong, part) - right).abs().nan_to_num(math.inf)


@dataclass(frozen=True, eq=False)
class Right:
    """The right version alone, tried: what every bug of one number type is held against."""

    tried: Tried

    @property
    def case(self) -> AttentionCase:
        return self.tried.case

    @cached_property
    def stages(self) -> AttentionStages:
        """[H,T,..], float32."""
        return _row(self.tried.stages)

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """For each law by its key."""
        return {name: judge(law, self.tried) for name, law in LAWS.items()}


@dataclass(frozen=True, eq=False)
class BugTrial:
    """A bug tried, and the right version. buggy: the whole run with it, where it lies in other layers too."""

    tried: Tried
    right: Right
    buggy: Trace | None


Newest = WeakKeyDictionary[Trace, tuple[tuple, Any]]  # of a run what was asked for last; it goes with the run
_right_of: Newest = WeakKeyDictionary()
_trial_of: Newest = WeakKeyDictionary()


def right_of(model: Model, trace: Trace, layer: int, row: int, dtype: torch.dtype) -> Right:
    """Made once for the bugs that are looked at in one layer and row of a run."""
    return _once(_right_of, trace, (layer, row, dtype),
                 lambda: Right(Tried(attention_stages, case_of(model, trace, layer, row).to(dtype))))  # fmt: skip


def trial_of(model: Model, trace: Trace, bug: Bug, layer: int, row: int) -> BugTrial:
    """Made once for all that is asked of the bug in one layer and row of a run under masks_for(model).

    All layers before are right, but for a bug that lies in them: then its queries and keys are those of a run with it.
    """

    def make() -> BugTrial:
        right, buggy = right_of(model, trace, layer, row, bug.dtype), None
        case = bug.case(right.case)
        if bug.first_layer and layer > 0 and trace.num_layers > 1 and model.standard.causal:
            buggy = model.run(trace.batch, _forgetful(model, trace.num_layers)).select(trace.name)
            case = replace(case_of(model, buggy, layer, row), allowed=right.case.allowed)
        return BugTrial(Tried(bug.function if layer >= bug.first_layer else attention_stages, case), right, buggy)

    return _once(_trial_of, trace, (bug.key, layer, row), make)


@torch.inference_mode()
def compare(model: Model, trace: Trace, bug: Bug, layer: int, row: int) -> BugComparison:
    """The bug beside the right version in one layer and row of a run under masks_for(model)."""
    trial, wrong, error = trial_of(model, trace, bug, layer, row), None, ""
    try:
        wrong = _row(trial.tried.stages)
    except Crash as crash:
        error = str(crash)
    return BugComparison(wrong, trial.right.stages, error, exact=_is_exact(model, bug, layer))


def _once(newest: Newest, trace: Trace, key: tuple, make: Callable[[], Made]) -> Made:
    found = newest.get(trace)
    if found is None or found[0] != key:
        found = newest[trace] = key, make()
    return found[1]


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
