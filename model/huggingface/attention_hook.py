"""Interception of transformers' attention, so that Unmask's own core computes it.

An attention function and a mask function are registered with transformers under one name. Both use the `AttentionRun`
that is active in this thread: a `Probe` finds the attentions and masks of a model, once; a `Recording` computes them
under the masks that a user chose. The active run is in a ContextVar and the model is never changed, so threads can
share the model.

Some networks compute attention by their own code. Any attention is q·k, then scaling, biases and masks, then a softmax
over the keys, then a weighted sum of values. A `TorchFunctionMode` sees these calls: a product of two tensors may be
scores; operations on scores are recorded; a softmax of scores gives weights; the product of weights and values is
replaced by Unmask's attention. Sizes: B rows, H query heads, Hkv key-value heads, Q queries, K keys, D head width.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from cachetools import FIFOCache
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AttentionMaskInterface

from i18n import N_, msg
from model.attention import ScoreTerms
from model.errors import NotSupported
from model.huggingface.internals import KNOWN_KEYWORDS

NAME = "unmask"

MAX_TRACKED_SCORES = 16  # most tensors that are tracked as possible scores
PRODUCTS = {"matmul", "bmm", "baddbmm", "einsum"}
FUSED = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")  # SDPA's positional arguments
CASTS = {"to", "float", "half", "bfloat16", "type", "type_as"}
COPIES = {"contiguous", "clone", "detach", "view", "reshape", "dropout", "alpha_dropout"}
LIMITS = {"clamp", "clip", "max", "maximum", "nan_to_num", "masked_fill"}  # they clip scores of almost -inf
SAME = CASTS | COPIES | LIMITS  # the result has the same values
SUMS, DIFFERENCES = {"add", "radd", "iadd"}, {"sub", "isub", "subtract"}
FACTORS = {"mul", "rmul", "imul", "multiply"}
QUOTIENTS = {"truediv", "itruediv", "div", "true_divide", "divide"}


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

    def continues(self, other: "Call | None") -> bool:
        """Whether the call has the same weights as `other`: some networks, DiffLlama for example, pass an attention's
        values in several calls."""
        if other is None:
            return False
        pairs = zip((self.q, self.k, *self.added), (other.q, other.k, *other.added), strict=False)
        return all(one is same for one, same in pairs)


class AttentionReached(Exception):
    """Raised by a run to end a forward pass at an attention: the rest need not run."""


class AttentionRun:
    """Base class of what computes the attentions of one forward pass.

    positions [B,T]: for position embeddings that would count padding too. custom_attention: whether attention computed
    by a network's own code is intercepted. part: the attention of the running stack: "self", "encoder" or "decoder".
    """

    positions: Tensor | None = None
    custom_attention = True
    part = "self"

    def __init__(self, lengths: Iterable[int] = ()) -> None:
        """lengths: the texts' lengths in tokens. A softmax over anything else is not taken for attention."""
        self._lengths = frozenset(lengths)

    def has_text_length(self, queries: int, keys: int) -> bool:
        """Whether the number of queries or of keys is the length of a text."""
        return queries in self._lengths or keys in self._lengths

    def mask(self, arguments: dict[str, Any]) -> Tensor:
        """Return a mask [B,1,Q,K] that changes nothing, stored as one number. arguments: a transformers mask
        function's."""
        zero = torch.zeros((), dtype=arguments.get("dtype") or torch.float32, device=arguments["device"])
        return zero.expand(arguments["batch_size"], 1, arguments["q_length"], arguments["kv_length"])

    def attend(self, call: Call) -> Tensor:
        """Return the output [B,H,Q,D]. This base class is the run of an output head, which must not attend."""
        raise NotSupported(msg("its output head has its own attention"))

    def watch(self, stack: nn.Module) -> AbstractContextManager[None]:
        """Return a context manager that is entered while a stack runs."""
        return nullcontext()


class ScriptedAttention(AttentionRun):
    """A run that returns prepared outputs [1,n,H,D], or zeros. `ends`: end the pass at its first attention instead.

    call: the last attention's inputs.
    """

    outputs: Tensor | None = None
    ends = False
    call: Call | None = None
    _given = 0  # how many of the outputs' D dimensions have been returned

    def attend(self, call: Call) -> Tensor:
        begin = self._given if call.continues(self.call) else 0
        self.call, self._given = call, begin + call.v.shape[-1]
        if self.ends:
            raise AttentionReached
        if self.outputs is None:
            return call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1])
        return self.outputs[..., begin : self._given].transpose(1, 2)


_RUN: ContextVar[AttentionRun | None] = ContextVar("_RUN", default=None)  # the run active in this thread


@contextmanager
def active_run(run: AttentionRun) -> Iterator[None]:
    """Let `run` compute the attentions of this thread's networks inside this context."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def attend_in_run(call: Call) -> Tensor:
    """Return the output [B,H,Q,D] of an attention, computed by the active run."""
    with torch._C.DisableTorchFunction():  # OwnAttention must not intercept Unmask's own attention
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
    """transformers' attention function: q [B,H,Q,D], k and v [B,Hkv,K,D] -> output [B,Q,H,D], without weights."""
    unknown = sorted(name for name, value in extra.items() if value is not None and name not in KNOWN_KEYWORDS)
    if unknown:
        template = N_("its attention depends on {names}, which Unmask does not support")
        raise NotSupported(msg(template, names=", ".join(unknown)))
    bias = extra.get("position_bias")
    bias = bias if bias is not None and bool(bias.any()) else None  # T5's cross-attention passes zeros
    sinks = extra.get("s_aux", extra.get("sinks"))  # a parameter, which may be trained after the run
    terms = ScoreTerms(extra.get("softcap"), bias, None if sinks is None else sinks.detach().clone())
    added = () if attention_mask is None else (attention_mask,)
    indices: Tensor | None = extra.get("indices")  # the keys that an indexer selected for each query, [B,Q,n]
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


def set_positions_from_run(embedding: nn.Module) -> None:
    """Make a position embedding that would count padding too use the active run's positions."""

    def use_run_positions(_: nn.Module, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        run = _RUN.get()
        if run is not None and run.positions is not None:
            options = options | {"position_ids": run.positions}
        return arguments, options

    embedding.register_forward_pre_hook(use_run_positions, with_kwargs=True)
    # BART puts another batch axis before the one of these positions
    embedding.register_forward_hook(lambda _, __, output: output.squeeze(0) if output.ndim == 4 else output)


# Register both: an attention function without a mask function of the same name silently gets no mask.
AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, lambda **arguments: current().mask(arguments))


@dataclass(frozen=True, eq=False)
class _Scores:
    """A tensor of scores, or with `weights` of their softmax, with how it was computed: q [B,H,Q,D], k [B,H,K,D];
    added: terms, each broadcastable to [B,H,Q,K]. tensor: kept alive, so that its id stays unique.
    """

    tensor: Tensor
    q: Tensor
    k: Tensor
    scale: float = 1.0
    added: tuple[Tensor, ...] = ()
    weights: bool = False

    def times(self, factor: float) -> "_Scores":
        added = tuple(one if one.dtype == torch.bool else one * factor for one in self.added)
        return replace(self, scale=self.scale * factor, added=added)

    def plus(self, term: Tensor) -> "_Scores":
        """Return the scores plus a term, which broadcasts to the network's scores."""
        if term.ndim == 3 and self.tensor.ndim == 3 and len(term) == len(self.tensor) > 1:
            term = term.unflatten(0, (self.q.shape[0], -1))  # [B·H,Q,K] -> [B,H,Q,K]
        return replace(self, added=(*self.added, term))


class OwnAttention(TorchFunctionMode):
    """A mode in which the active run computes the attention of a network's own code, on batches of `rows` rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows
        self._known: FIFOCache[int, _Scores] = FIFOCache(MAX_TRACKED_SCORES)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "").strip("_")
        if name in PRODUCTS:
            weights = next((known for known in map(self._scores_of, args) if known is not None and known.weights), None)
            if weights is not None and current().has_text_length(weights.q.shape[2], weights.k.shape[2]):
                return self._output(weights, name, args)
            result = function(*args, **kwargs)
            self._note(_product(name, args, kwargs, result, self._rows))
            return result
        if name == "scaled_dot_product_attention":
            given = dict(zip(FUSED, args, strict=False)) | kwargs
            query, key, mask = given["query"], given["key"], given.get("attn_mask")
            if not current().has_text_length(query.shape[-2], key.shape[-2]):
                return function(*args, **kwargs)
            added = () if mask is None else (mask,)
            if given.get("is_causal"):
                added = (*added, query.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()[None, None])
            return attend_in_run(Call(None, query, key, given["value"], added, given.get("scale"), ScoreTerms()))
        inputs = (*args, *(kwargs[key] for key in ("condition", "input", "mask", "other") if key in kwargs))
        known = next((known for known in map(self._scores_of, inputs) if known is not None), None)
        result = function(*args, **kwargs)
        if name == "softmax":
            if known is not None and kwargs.get("dim", args[1] if len(args) > 1 else None) in (-1, result.ndim - 1):
                self._known.clear()
                self._note(replace(known, tensor=result, weights=True))
            return result
        if known is not None and isinstance(result, Tensor) and result.numel() == known.tensor.numel():
            after = _step(known, name, inputs) if result.shape[-2:] == known.tensor.shape[-2:] else None
            self._note(after and replace(after, tensor=result))
        return result

    def _scores_of(self, value: Any) -> _Scores | None:
        return self._known.get(id(value)) if isinstance(value, Tensor) else None

    def _note(self, scores: _Scores | None) -> None:
        if scores is not None:
            self._known[id(scores.tensor)] = scores

    def _output(self, weights: _Scores, name: str, args: tuple[Any, ...]) -> Tensor:
        """Return the product of weights and values, computed by Unmask's attention."""
        self._known.clear()
        if name == "einsum":
            equation, _, values = args
            (left, right), out = _letters(equation)
            batch = [letter for letter in out if letter in left and letter in right]
            width = next(letter for letter in right if letter in out and letter not in batch)
            key = next(letter for letter in right if letter not in out)
            query = next(letter for letter in out if letter not in batch and letter != width)
            result = self._attend(weights, _permuted(values, right, [*batch, key, width]))
            return _permuted(result, [*batch, query, width], out)
        values = args[1]
        result = self._attend(weights, _by_head(values, self._rows))
        return result if values.ndim == 4 else result.flatten(0, 1)

    def _attend(self, scores: _Scores, v: Tensor) -> Tensor:
        # GPT-J and similar models keep queries and keys in float32 but values in 16 bits
        wide = v.to(scores.q.dtype)
        call = Call(None, scores.q, scores.k, wide, scores.added, scores.scale, ScoreTerms())
        return attend_in_run(call).to(v.dtype)


def _product(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, rows: int) -> _Scores | None:
    """Return a product as scores, None if its operands cannot be q and k of this batch."""
    if name == "einsum":
        return _einsum_product(args, result)
    operands: Any = (*args, kwargs.get("batch1"), kwargs.get("batch2")) if name == "baddbmm" else (None, *args)
    bias, left, right = operands[:3]
    if left.ndim != right.ndim or left.ndim not in (3, 4) or len(left) % rows or len(left) != len(right):
        return None
    if left.ndim == 4 and right.shape[1] not in (1, left.shape[1]):  # one key head may be shared by all
        return None
    scores = _Scores(result, _by_head(left, rows), _by_head(right, rows).transpose(-1, -2))
    return scores if bias is None else scores.times(kwargs.get("alpha", 1)).plus(bias * kwargs.get("beta", 1))


def _einsum_product(args: tuple[Any, ...], result: Tensor) -> _Scores | None:
    """Return an einsum such as "ibnd,jbnd->bnij" as scores: two letters in all three terms, then queries, then keys."""
    if len(args) != 3 or not isinstance(args[0], str) or "." in args[0]:
        return None
    (left, right), out = _letters(args[0])
    batch = [letter for letter in out if letter in left and letter in right]
    rest = [letter for letter in out if letter not in batch]
    summed = [letter for letter in left if letter in right and letter not in out]
    if len(batch) != 2 or len(rest) != 2 or len(summed) != 1 or out != (*batch, *rest) or rest[0] not in left:
        return None
    q = _permuted(args[1], left, [*batch, rest[0], *summed])
    k = _permuted(args[2], right, [*batch, rest[1], *summed])
    return _Scores(result, q, k)


def _permuted(tensor: Tensor, letters: Sequence[str], wanted: Sequence[str]) -> Tensor:
    """Permute a tensor, whose axes are named by letters, to the wanted order of letters."""
    return tensor.permute([letters.index(letter) for letter in wanted])


def _letters(equation: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    inputs, _, out = equation.replace(" ", "").partition("->")
    return [tuple(operand) for operand in inputs.split(",")], tuple(out)


def _step(known: _Scores, name: str, args: tuple[Any, ...]) -> _Scores | None:
    """Return the scores after one more operation, None if attention has no such operation."""
    first = args[0] is known.tensor
    if not known.weights and name == "masked_fill":
        return known.plus(~args[1].bool())
    if not known.weights and name == "where":
        allowed = args[0].bool()
        return known.plus(allowed if args[1] is known.tensor else ~allowed)
    if name in SAME:
        return known
    if known.weights or len(args) < 2:
        return None
    other: Any = args[1] if first else args[0]
    number = None if isinstance(other, Tensor) and other.numel() != 1 else float(other)
    if name in FACTORS:
        if number is None:
            return known.plus(other.bool()) if bool(((other == 0) | (other == 1)).all()) else None
        return known.times(number)
    if name in QUOTIENTS:
        return None if number is None or not first else known.times(1 / number)
    if name in SUMS and number == 0:
        return known
    if name in SUMS and isinstance(other, Tensor):
        return known.plus(other)
    if name in DIFFERENCES and isinstance(other, Tensor) and first:
        return known.plus(-other)
    return None


def _by_head(tensor: Tensor, rows: int) -> Tensor:
    """Return q, k or v by head: [B,H,Q,D] as it is, [B·H,Q,D] as [B,H,Q,D]."""
    return tensor if tensor.ndim == 4 else tensor.unflatten(0, (rows, -1))
