"""Cached steps beside full runs, remembered."""

from dataclasses import replace

from model import kv_cache
from model.base import Model
from model.kv_cache import CacheComparison
from serving.job import ModelRef
from ui import results


def compared(model: Model, ids: tuple[int, ...], start: int, causal: bool = True) -> CacheComparison:
    return results.ask(kv_cache.compare, ModelRef.of(model), ids, start, replace(model.standard, causal=causal))


def compared_exactly(model: Model, ids: tuple[int, ...], start: int) -> CacheComparison | None:
    """As compared, in float64; None for a model that is too large for that."""
    if not kv_cache.fits_float64(model):
        return None
    return results.ask(kv_cache.compare_in_float64, ModelRef.of(model), ids, start)
