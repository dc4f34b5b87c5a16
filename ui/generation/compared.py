"""Cached steps beside full runs, remembered."""

from dataclasses import replace

from model import kv_cache
from model.base import Model
from model.kv_cache import Comparison
from ui import results


def compared(model: Model, ids: tuple[int, ...], start: int, causal: bool = True) -> Comparison:
    spec = replace(model.standard, causal=causal)
    key = ("cached", model.key, ids, start, causal)
    return results.shared().get(key, lambda: kv_cache.compare(model, ids, start, spec))


def compared_exactly(model: Model, ids: tuple[int, ...], start: int) -> Comparison | None:
    """As compared, in float64; None for a model that is too large for that."""
    if not kv_cache.fits_float64(model):
        return None
    key = ("cached in float64", model.key, ids, start)
    return results.shared().get(key, lambda: kv_cache.compare(kv_cache.in_float64(model), ids, start))
