"""What one step of writing costs, with a cache and without: multiply-adds from the shapes, and seconds as measured."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from statistics import median

import torch
from torch import Tensor

from i18n import msg
from model import kv_cache
from model.base import Model
from model.blocks import positions_of
from model.kv_cache import batch_of
from model.masks import MaskSpec
from model.trace import Trace
from model.transformer import TransformerConfig


@dataclass(frozen=True, eq=False)
class OldRows:
    """The T-1 old rows of a text, in a run without its newest token and in one with it: the largest differences.

    rows [T-1]: in any head's weights of that row, the newest token's column included. weights [L]: that by layer.
    kept [L]: in the keys and values, which a cache holds. logits [T-1]: of each old position.
    """

    rows: Tensor
    weights: Tensor
    kept: Tensor
    logits: Tensor


@torch.inference_mode()
def old_rows(model: Model, ids: tuple[int, ...], spec: MaskSpec) -> OldRows:
    """Run ids without and with the last one, and compare. Raises ValueError for fewer than two."""
    if len(ids) < 2:
        raise ValueError(msg("expected at least 2 tokens, got {count}", count=len(ids)))
    old = slice(0, len(ids) - 1)
    before, after = model.run(batch_of(model, ids[:-1]), spec), model.run(batch_of(model, ids), spec)
    rows, kept = [], []
    for one, other in zip(before.layers, after.layers, strict=True):
        now = other.weights(spec, 0, old)  # [H,T-1,T]
        then = torch.nn.functional.pad(one.weights(spec, 0, old), (0, 1))
        rows.append((now - then).abs().amax((0, 2)).cpu())
        kept.append(max(_largest(other.k[:, :, old] - one.k), _largest(other.v[:, :, old] - one.v)))
    by_layer = torch.stack(rows)  # [L,T-1]
    logits = model.readout(after.states[0, old]) - model.readout(before.states[0])
    return OldRows(by_layer.amax(0), by_layer.amax(1), torch.tensor(kept), logits.float().abs().amax(-1).cpu())


def _largest(difference: Tensor) -> float:
    return float(difference.float().abs().max())


MOST_MEASURED = 12  # steps of one text
ROUNDS = 7


@dataclass(frozen=True)
class Try:
    """The step that reads `length` tokens and predicts the next, done once in full and once cached: seconds."""

    length: int
    full: float
    cached: float


@dataclass(frozen=True)
class Cost:
    """What tries of one step come to, in seconds: the quickest, which is the step itself, for whatever else the machine
    does can only add to it; and the median of those in full, which is what it usually added."""

    length: int
    full: float
    cached: float
    usual: float


def multiply_adds(config: TransformerConfig, queries: int, keys: int) -> int:
    """Of one run that computes `queries` positions over `keys` positions, and the last one's logits.

    Counted are the matrix products: in each layer the projections to q, k, v and back, 4·Q·W², the two products with
    the queries' scores, 2·Q·K·W, whatever the mask blocks of them, and the two of the MLP, 2·Q·W·M; at the end W·V.
    """
    width, mlp_width = config.width, config.mlp_width or 4 * config.width
    layer = 4 * queries * width**2 + 2 * queries * keys * width + 2 * queries * width * mlp_width
    return config.layers * layer + width * config.vocabulary


def lengths_to_measure(tokens: int, most: int = MOST_MEASURED) -> list[int]:
    """From 2 to all of a text's tokens, at most so many, evenly spread; the first and the last always."""
    if tokens <= 2:
        return [tokens] if tokens == 2 else []
    count = min(most, tokens - 1)
    return sorted({2 + round(place * (tokens - 2) / (count - 1)) for place in range(count)})


def plan(tokens: int) -> list[int]:
    """The lengths to try, one after the other: a round of all of them, then the next round, so that a machine that is
    busy for a while slows all alike."""
    return lengths_to_measure(tokens) * ROUNDS


def measure(model: Model, whole: Trace, length: int) -> Try:
    """Try the step that reads so many of a text's tokens. whole: a run of all of them under the standard masks.

    Raises ValueError for a model that is not ours.
    """
    network = kv_cache.network_of(model)
    if network is None:
        raise ValueError(f"expected a model that runs on our own Transformer, got {model.name}")  # not shown
    ids = tuple(whole.batch.ids[0, :length].tolist())
    batch, cache = kv_cache.batch_of(model, ids), kv_cache.cache_of(whole, length - 1)
    positions, triangle = positions_of(batch.keep), torch.ones(1, 1, length, length, dtype=torch.bool).tril()

    def full() -> None:
        states, _ = network(batch.ids, positions, triangle)
        network.logits(states[0, -1])

    def one() -> None:
        network.logits(kv_cache.step(model, cache, ids[-1])[0][0, 0])

    return Try(length, _seconds(full), _seconds(one))


def costs(tries: Iterable[Try]) -> list[Cost]:
    """A cost for each length, the shortest first."""
    ordered = sorted(tries, key=lambda one: one.length)
    groups = [list(group) for _, group in groupby(ordered, key=lambda one: one.length)]
    return [
        Cost(
            group[0].length,
            min(one.full for one in group),
            min(one.cached for one in group),
            median(one.full for one in group),
        )
        for group in groups
    ]


def clear(found: list[Cost]) -> bool:
    """Whether times tell what the counts do: the quickest full step of the longest text is slower than one of the
    shortest usually was, and than any cached one."""
    return len(found) > 1 and found[-1].full > max(found[0].usual, *(one.cached for one in found))


@torch.inference_mode()
def _seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
