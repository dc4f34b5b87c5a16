"""transformers' attention, sent through our own core.

transformers lets a program register an attention function and a mask function under a name of its own. Ours ask the
run that is going on in this thread what to do: a `Probe` learns, once for each model, where its attentions are and
which masks it has; a `Recording` computes each of them under the masks that a reader chose. The run travels in a
ContextVar and the model is never changed, so that threads can share it.
Sizes: B rows, H query heads, Hkv key-value heads, Q queries, K keys, D head width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from i18n import say
from model.attention import ScoreTerms
from model.errors import NotSupported
from model.huggingface.internals import KNOWN_KEYWORDS

NAME = "unmask"


@dataclass(frozen=True, eq=False)
class Call:
    """One attention on its way: q [B,H,Q,D], k and v [B,Hkv,K,D].

    added: what the network adds to the scores besides, or masks them with, each broadcastable to [B,H,Q,K]: float, or
    bool with True = may attend. module: whose attention it is, None where that is not known.
    """

    module: nn.Module | None
    q: Tensor
    k: Tensor
    v: Tensor
    added: tuple[Tensor, ...]
    scale: float | None
    terms: ScoreTerms


class PositionedRun(Protocol):
    """positions [B,T]: where each token stands, for models that work this out by themselves and get padding wrong.

    own_code: whether attention by a network's own code is to come through it, too.
    concerns: whether so many queries and keys may be the text's tokens; a softmax over other things is no attention.
    """

    positions: Tensor | None
    own_code: bool

    def concerns(self, queries: int, keys: int) -> bool: ...
    def attend(self, call: Call) -> Tensor: ...
    def mask(self, arguments: dict[str, Any]) -> Tensor | None: ...


_RUN: ContextVar[PositionedRun | None] = ContextVar("_RUN", default=None)  # that is going on in this thread


@contextmanager
def going_on(run: PositionedRun) -> Iterator[None]:
    """Within it, this thread's networks ask `run` for their attention."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


class NoAttention:
    """Going on while a network's head alone is computed, whose attentions are not asked for."""

    positions: Tensor | None = None
    own_code = False

    def concerns(self, queries: int, keys: int) -> bool:
        return True

    def attend(self, call: Call) -> Tensor:
        raise NotSupported(say("its output head has its own attention"))

    def mask(self, arguments: dict[str, Any]) -> Tensor | None:
        return None


def blank(arguments: dict[str, Any]) -> Tensor:
    """A mask [B,1,Q,K] that changes nothing, in the memory of one number: for networks that work on what they get."""
    zero = torch.zeros((), dtype=arguments.get("dtype") or torch.float32, device=arguments["device"])
    return zero.expand(arguments["batch_size"], 1, arguments["q_length"], arguments["kv_length"])


def attend_in_run(call: Call) -> Tensor:
    """The output [B,H,Q,D] of an attention, by the run that is going on."""
    with torch._C.DisableTorchFunction():  # our own attention is not the network's to be watched
        return current().attend(call)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **extra: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: q [B,H,Q,D], k and v [B,Hkv,K,D] -> output [B,Q,H,D], no weights."""
    unknown = sorted(name for name, value in extra.items() if value is not None and name not in KNOWN_KEYWORDS)
    if unknown:
        raise NotSupported(
            say("its attention depends on {names}, which Unmask does not support", names=", ".join(unknown))
        )
    terms = ScoreTerms(extra.get("softcap"), _bias(extra.get("position_bias")), extra.get("s_aux", extra.get("sinks")))
    added = () if attention_mask is None else (attention_mask,)
    if extra.get("indices") is not None:
        added = (*added, _chosen(extra["indices"], key.shape[2]))
    call = Call(module, query, key, value, added, scaling, terms)
    return attend_in_run(call).transpose(1, 2).contiguous(), None


def _bias(bias: Tensor | None) -> Tensor | None:
    """None for a bias of zeros, which is what T5's cross-attention gets."""
    return bias if bias is not None and bool(bias.any()) else None


def _chosen(indices: Tensor, keys: int) -> Tensor:
    """The keys that an indexer chose for each query, [B,Q,n], as a mask: bool [B,1,Q,K], True = may attend."""
    if indices.ndim != 3 or bool((indices < 0).any()):
        raise NotSupported(say("it selects the tokens it attends to in a way that Unmask does not support"))
    none = torch.zeros(*indices.shape[:2], keys, dtype=torch.bool, device=indices.device)
    return none.scatter(-1, indices.long(), True)[:, None]


def _mask(**arguments: Any) -> Tensor | None:
    """transformers' mask function: what it returns is the attention function's attention_mask."""
    return current().mask(arguments)


def current() -> PositionedRun:
    run = _RUN.get()
    if run is None:
        raise RuntimeError(f"attention {NAME!r} works only within a run; use HuggingFaceModel.run")  # not shown
    return run


def give_positions(embedding: nn.Module) -> None:
    """Make a position embedding that counts a row's cells, padding included, use the run's positions."""

    def use_ours(
        _: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        run = _RUN.get()
        if run is not None and run.positions is not None:
            options = options | {"position_ids": run.positions}
        return arguments, options

    def without_extra_axis(_: nn.Module, __: tuple[Any, ...], embedded: Tensor) -> Tensor:
        return embedded.squeeze(0) if embedded.ndim == 4 else embedded  # BART's puts a batch axis before ours

    embedding.register_forward_pre_hook(use_ours, with_kwargs=True)
    embedding.register_forward_hook(without_extra_axis)


# Both, always: an attention function without a mask function of the same name gets no mask and no warning.
AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
