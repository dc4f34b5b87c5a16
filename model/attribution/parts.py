"""The results of attribution as plain arrays: value-weighted attention, direct effects, and the split of a score.

Sizes: K keys, D head width, S sources.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ValueWeightedAttention:
    """Value-weighted attention of one query of a head over K keys. weights, value_norms: [K]. moved: [K], weight × norm
    of the value. added: [K], the norm of what each key adds to the residual stream, through the output projection; None
    if not available. output: the norm of their sum."""

    weights: np.ndarray
    value_norms: np.ndarray
    moved: np.ndarray
    added: np.ndarray | None
    output: float | None


@dataclass(frozen=True, eq=False)
class DirectEffect:
    """The direct effect of a head on the logits of the next token: past all later layers, with the final norm's
    deviation frozen. up, down: (label, effect) of the tokens it affects most, in logits, relative to `mean`, its
    effect on all tokens: adding the same to all changes no probability. capped: whether the model caps its logits
    after this."""

    up: tuple[tuple[str, float], ...]
    down: tuple[tuple[str, float], ...]
    mean: float
    capped: bool = False


@dataclass(frozen=True, eq=False)
class ScoreSplit:
    """The split of one cell's score. q, k: float64 [D]. scale: the factor of q·k. by_dimension: [D], q·k times the
    scale; score: their sum, before any mask. added: what the architecture adds to it (a bias), or 0; softcap: what it
    caps it at before that, or None. sources: S names, translated where shown, and terms: float64 [S,S], rows for what
    wrote the query, columns for what wrote the key: they sum to the score. Both None if that is not exact; why_not
    gives the reason in a sentence."""

    q: np.ndarray
    k: np.ndarray
    scale: float
    by_dimension: np.ndarray
    score: float
    added: float = 0.0
    softcap: float | None = None
    sources: tuple[str, ...] | None = None
    terms: np.ndarray | None = None
    why_not: str = ""
