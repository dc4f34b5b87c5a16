"""What tells two heatmaps of one head apart, in a number: for whoever asks why it is this bug and not that one.

Weights are [T,T], rows are queries; keep [T], True = a real token.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

PLAIN = 0.05  # a difference of a feature that a person can see


def later(weights: Tensor, keep: Tensor) -> float:
    """The share of real tokens' weight that goes to later tokens, of all that goes to real ones."""
    among = weights[keep][:, keep]
    return _share(among.triu(1), among)


def padding(weights: Tensor, keep: Tensor) -> float:
    """The share of real tokens' weight that goes to padding."""
    return _share(weights[keep][:, ~keep], weights[keep])


def itself(weights: Tensor, keep: Tensor) -> float:
    """The mean weight that a real token gives itself."""
    return float(weights.diagonal()[keep].mean())


def largest(weights: Tensor, keep: Tensor) -> float:
    """The mean of the largest weight in a real token's row."""
    return float(weights[keep].amax(-1).mean())


def least_sum(weights: Tensor, keep: Tensor) -> float:
    """The smallest sum of a real token's row."""
    return float(weights[keep].sum(-1).min())


FEATURES: dict[str, Callable[[Tensor, Tensor], float]] = {
    "later": later,
    "padding": padding,
    "sum": least_sum,
    "itself": itself,
    "largest": largest,
}


@dataclass(frozen=True)
class HeatmapDifference:
    """Where one heatmap differs from another: a feature, or else a cell (query, key), and both heatmaps' numbers."""

    feature: str
    cell: tuple[int, int]
    one: float
    other: float


def difference(one: Tensor, other: Tensor, keep: Tensor, features: tuple[str, ...]) -> HeatmapDifference:
    """The first of these features in which they differ plainly; where none does, the cell in which they differ most."""
    for name in features:
        first, second = (FEATURES[name](weights, keep) for weights in (one, other))
        if abs(first - second) >= PLAIN:
            return HeatmapDifference(name, (-1, -1), first, second)
    apart = (one - other).abs()
    query, key = divmod(int(apart.argmax()), apart.shape[1])
    return HeatmapDifference("", (query, key), float(one[query, key]), float(other[query, key]))


def _share(part: Tensor, whole: Tensor) -> float:
    total = float(whole.sum())
    return float(part.sum()) / total if total else 0.0
