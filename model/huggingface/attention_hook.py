"""transformers' attention, computed by our own core.

An attention function and a mask function are registered with transformers under one name. Both ask the `AttentionRun`
that is active in this thread: a `Probe` finds, once for each model, its attentions and masks; a `Recording` computes
them under the masks that a user chose. The run is in a ContextVar and the model is never changed, so threads can share
the model.
Sizes: B rows, H query heads, Hkv key-value heads, Q queries, K keys, D head width.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from i18n import N_, msg
from model.attention import ScoreTerms
from model.errors import NotSupported
from model.huggingface.internals import KNOWN_KEYWORDS

NAME = "unmask"


@dataclass(frozen=True, eq=False)
class Call:
    """The inputs of one attention: q [B,H,Q,D], k and v [B,Hkv,K,D].

    added: masks and biases of the scores, each broadcastable to [B,H,Q,K]: float, or bool with True = may attend.
    module: the attention's module, None if unknown.
    """

    module: nn.Module | None
    q: Tensor
    k: Tensor
    v: Tensor
    added: tuple[Tensor, ...]
    scale: float | None
    terms: ScoreTerms


class Reached(Exception):
    """Raised by a run that ends a pass at an attention: the rest need not run."""


class AttentionRun:
    """Computes the attentions of one pass through a network.

    positions [B,T]: for position embeddings that count padding too. own_code: whether attention computed by a network's
    own code is intercepted. part: the attention of the stack that is running: "self", "encoder" or "decoder".
    """

    positions: Tensor | None = None
    own_code = True
    part = "self"

    def __init__(self, lengths: Iterable[int] = ()) -> None:
        """lengths: of the texts, in tokens. A softmax over anything else is not an attention."""
        self._lengths = frozenset(lengths)

    def concerns(self, queries: int, keys: int) -> bool:
        """Whether either is the number of a text's tokens."""
        return queries in self._lengths or keys in self._lengths

    def mask(self, arguments: dict[str, Any]) -> Tensor:
        """A mask [B,1,Q,K] that changes nothing, in the memory of one number. arguments: of a transformers mask."""
        zero = torch.zeros((), dtype=arguments.get("dtype") or torch.float32, device=arguments["device"])
        return zero.expand(arguments["batch_size"], 1, arguments["q_length"], arguments["kv_length"])

    def attend(self, call: Call) -> Tensor:
        """The output [B,H,Q,D]. This class is the run of an output head, which must not attend."""
        raise NotSupported(msg("its output head has its own attention"))

    def watch(self, stack: nn.Module) -> AbstractContextManager[None]:
        """Entered while a stack runs."""
        return nullcontext()


class ScriptedAttention(AttentionRun):
    """Returns prepared outputs [1,n,H,D], or zeros. `ends`: ends the pass at its first attention instead.

    call: the last attention's inputs.
    """

    outputs: Tensor | None = None
    ends = False
    call: Call | None = None

    def attend(self, call: Call) -> Tensor:
        self.call = call
        if self.ends:
            raise Reached
        if self.outputs is None:
            return call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1])
        return self.outputs.transpose(1, 2)


_RUN: ContextVar[AttentionRun | None] = ContextVar("_RUN", default=None)  # active in this thread


@contextmanager
def active_run(run: AttentionRun) -> Iterator[None]:
    """Within it, `run` computes the attentions of this thread's networks."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def attend_in_run(call: Call) -> Tensor:
    """The output [B,H,Q,D] of an attention, by the active run."""
    with torch._C.DisableTorchFunction():  # OwnAttention must not see our own attention
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
        words = N_("its attention depends on {names}, which Unmask does not support")
        raise NotSupported(msg(words, names=", ".join(unknown)))
    bias = extra.get("position_bias")
    bias = bias if bias is not None and bool(bias.any()) else None  # T5's cross-attention gets zeros
    terms = ScoreTerms(extra.get("softcap"), bias, extra.get("s_aux", extra.get("sinks")))
    added = () if attention_mask is None else (attention_mask,)
    indices: Tensor | None = extra.get("indices")  # of the keys that an indexer chose for each query, [B,Q,n]
    if indices is not None:
        if indices.ndim != 3 or bool((indices < 0).any()):
            raise NotSupported(msg("it selects the tokens it attends to in a way that Unmask does not support"))
        none = torch.zeros(*indices.shape[:2], key.shape[2], dtype=torch.bool, device=indices.device)
        added = (*added, none.scatter(-1, indices.long(), True)[:, None])
    call = Call(module, query, key, value, added, scaling, terms)
    return attend_in_run(call).transpose(1, 2).contiguous(), None


def current() -> AttentionRun:
    run = _RUN.get()
    if run is None:
        raise RuntimeError(f"attention {NAME!r} works only within a run; use HuggingFaceModel.run")  # not shown
    return run


def give_positions(embedding: nn.Module) -> None:
    """Make a position embedding that counts padding too use the active run's positions."""

    def use_ours(_: nn.Module, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        run = _RUN.get()
        if run is not None and run.positions is not None:
            options = options | {"position_ids": run.positions}
        return arguments, options

    embedding.register_forward_pre_hook(use_ours, with_kwargs=True)
    # BART adds a batch axis before ours
    embedding.register_forward_hook(lambda _, __, output: output.squeeze(0) if output.ndim == 4 else output)


# Both, always: an attention function without a mask function of the same name gets no mask and no warning.
AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, lambda **arguments: current().mask(arguments))
