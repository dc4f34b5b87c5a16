"""Attention that a network computes by its own code, recognised while it runs and computed by our core.

Any attention is q·k, then scaling, biases and masks, then a softmax over the keys, then a sum of values. A
`TorchFunctionMode` sees these calls: a product of two tensors may be scores; what is applied to scores is recorded; a
softmax of scores gives weights; the product of weights and values is replaced by our attention.
Sizes: B rows, H heads, Q queries, K keys, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from cachetools import FIFOCache
from torch import Tensor
from torch.overrides import TorchFunctionMode

from model.attention import ScoreTerms
from model.huggingface.attention_hook import Call, attend_in_run, current

REMEMBERED = 16  # tensors that may be scores
PRODUCTS = {"matmul", "bmm", "baddbmm", "einsum"}
FUSED = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")  # positional arguments
CASTS = {"to", "float", "half", "bfloat16", "type", "type_as"}
COPIES = {"contiguous", "clone", "detach", "view", "reshape", "dropout", "alpha_dropout"}
LIMITS = {"clamp", "clip", "max", "maximum", "nan_to_num", "masked_fill"}  # of scores that are almost -inf
SAME = CASTS | COPIES | LIMITS  # the result has the same values
SUMS, DIFFERENCES = {"add", "radd", "iadd"}, {"sub", "isub", "subtract"}
FACTORS = {"mul", "rmul", "imul", "multiply"}
QUOTIENTS = {"truediv", "itruediv", "div", "true_divide", "divide"}


@dataclass(frozen=True, eq=False)
class _Scores:
    """How a tensor of scores, or with `weights` of their softmax, was computed: q [B,H,Q,D], k [B,H,K,D]; added: each
    broadcastable to [B,H,Q,K]. tensor: kept, so that its id stays unique.
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
        """term: broadcasts to the network's scores."""
        if term.ndim == 3 and self.tensor.ndim == 3 and len(term) == len(self.tensor) > 1:
            term = term.unflatten(0, (self.q.shape[0], -1))  # [B·H,Q,K] -> [B,H,Q,K]
        return replace(self, added=(*self.added, term))


class OwnAttention(TorchFunctionMode):
    """Within it, the active run computes the attentions of a batch of so many rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows
        self._known: FIFOCache[int, _Scores] = FIFOCache(REMEMBERED)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "").strip("_")
        if name in PRODUCTS:
            weights = next((known for known in map(self._of, args) if known is not None and known.weights), None)
            if weights is not None and current().concerns(weights.q.shape[2], weights.k.shape[2]):
                return self._output(weights, name, args)
            result = function(*args, **kwargs)
            self._note(_product(name, args, kwargs, result, self._rows))
            return result
        if name == "scaled_dot_product_attention":
            given = dict(zip(FUSED, args, strict=False)) | kwargs
            query, key, mask = given["query"], given["key"], given.get("attn_mask")
            if not current().concerns(query.shape[-2], key.shape[-2]):
                return function(*args, **kwargs)
            added = () if mask is None else (mask,)
            if given.get("is_causal"):
                added = (*added, query.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()[None, None])
            return attend_in_run(Call(None, query, key, given["value"], added, given.get("scale"), ScoreTerms()))
        if name == "softmax":
            return self._softmax(function, args, kwargs)
        known = next((known for known in map(self._of, args) if known is not None), None)
        result = function(*args, **kwargs)
        if known is not None and isinstance(result, Tensor) and result.numel() == known.tensor.numel():
            after = _step(known, name, args) if result.shape[-2:] == known.tensor.shape[-2:] else None
            self._note(after and replace(after, tensor=result))
        return result

    def _of(self, value: Any) -> _Scores | None:
        return self._known.get(id(value)) if isinstance(value, Tensor) else None

    def _note(self, scores: _Scores | None) -> None:
        if scores is not None:
            self._known[id(scores.tensor)] = scores

    def _softmax(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        known = self._of(args[0] if args else kwargs.get("input"))
        result: Tensor = function(*args, **kwargs)
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if known is not None and dim in (-1, result.ndim - 1):
            self._known.clear()
            self._note(replace(known, tensor=result, weights=True))
        return result

    def _output(self, weights: _Scores, name: str, args: tuple[Any, ...]) -> Tensor:
        """The product of weights and values, by our attention."""
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
        return attend_in_run(Call(None, scores.q, scores.k, v, scores.added, scores.scale, ScoreTerms()))


def _product(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, rows: int) -> _Scores | None:
    """A product as scores; None if its operands cannot be q and k of this batch."""
    if name == "einsum":
        return _einsum_product(args, result)
    if name == "baddbmm":
        bias, left, right = (*args, kwargs.get("batch1"), kwargs.get("batch2"))[:3]
        scores = _matrix_product(left, right, result, rows)
        if scores is None:
            return None
        return replace(scores.times(kwargs.get("alpha", 1)), tensor=result).plus(bias * kwargs.get("beta", 1))
    return _matrix_product(args[0], args[1], result, rows)


def _matrix_product(left: Tensor, right: Tensor, result: Tensor, rows: int) -> _Scores | None:
    if left.ndim != right.ndim or left.ndim not in (3, 4) or len(left) % rows or len(left) != len(right):
        return None
    if left.ndim == 4 and right.shape[1] not in (1, left.shape[1]):  # one key head may be shared by all
        return None
    return _Scores(result, _by_head(left, rows), _by_head(right, rows).transpose(-1, -2))


def _einsum_product(args: tuple[Any, ...], result: Tensor) -> _Scores | None:
    """As "ibnd,jbnd->bnij": two letters in all three, then queries, then keys."""
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
    """A tensor whose axes are called letters, its axes in the wanted order."""
    return tensor.permute([letters.index(letter) for letter in wanted])


def _letters(equation: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    inputs, _, out = equation.replace(" ", "").partition("->")
    return [tuple(operand) for operand in inputs.split(",")], tuple(out)


def _step(known: _Scores, name: str, args: tuple[Any, ...]) -> _Scores | None:
    """The scores after one more operation; None if attention has no such operation."""
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
    """[B,H,Q,D], or [B·H,Q,D] -> [B,H,Q,D]."""
    return tensor if tensor.ndim == 4 else tensor.unflatten(0, (rows, -1))
