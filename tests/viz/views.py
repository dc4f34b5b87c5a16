"""Views to draw: random weights under masks that a test selects."""

import numpy as np

from model.heads.view import HeadView


def causal(tokens: int) -> np.ndarray:
    """Return what a causal mask blocks, bool [T,T]."""
    return ~np.tri(tokens, dtype=bool)


def padded(tokens: int, count: int, side: str = "left") -> np.ndarray:
    """Return what a padding mask blocks, bool [T,T]."""
    keys = np.zeros(tokens, bool)
    keys[:count] = True
    return np.tile(keys if side == "left" else keys[::-1], (tokens, 1))


def view_of(shape: tuple[int, int], seed: int = 0, **blocked: np.ndarray) -> HeadView:
    """Return a view whose rows sum to 1 over the cells that no mask blocks, with token labels that all differ."""
    random = np.random.default_rng(seed)
    free = ~np.any([np.zeros(shape, bool), *blocked.values()], axis=0)
    scaled = random.normal(size=shape).astype(np.float32)
    powers = np.exp(scaled) * free
    weights = (powers / np.maximum(powers.sum(1, keepdims=True), 1e-30)).astype(np.float32)
    queries, keys = ([f"{letter}{index}" for index in range(size)] for letter, size in zip("qk", shape, strict=True))
    return HeadView(weights, scaled, blocked, queries, keys)
