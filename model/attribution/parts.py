"""What one query of a head carries, what that does, and why a cell's score is what it is: plain arrays to draw.

Sizes: K keys, D head width, S sources.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ValueWeightedAttention:
    """One query of a head over K keys. weights, value_norms: [K]. moved: [K], weight × norm of the value. added: [K],
    the norm of what each key adds to the residual stream, through the output projection; None where that is not known.
    output: the norm of their sum."""

    weights: np.ndarray
    value_norms: np.ndarray
    moved: np.ndarray
    added: np.ndarray | None
    output: float | None


@dataclass(frozen=True, eq=False)
class DirectEffect:
    """What a head adds to the logits of the next token by itself, past all later layers, the final norm's deviation
    held at its value. up, down: (label, effect) of the tokens it pushes most, in logits, relative to `mean`, its effect
    on all tokens: adding the same to all changes no probability. capped: whether the model caps its logits after this.
    """

    up: tuple[tuple[str, float], ...]
    down: tuple[tuple[str, float], ...]
    mean: float
    capped: bool = False


@dataclass(frozen=True, eq=False)
class ScoreSplit:
    """One cell. q, k: float64 [D]. scale: what q·k is multiplied with. by_dimension: [D], q·k times the scale; score:
    their sum, before any mask. added: what the architecture adds to it (a bias), or 0; softcap: what it caps
    it at before that, or None. sources: S names, which a page says in its language, and terms: float64 [S,S], rows what
    wrote the query, columns what wrote the key: they sum to the score. Both None where that is not exact; why_not says
    why in a sentence."""

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
