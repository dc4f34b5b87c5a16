"""The likely cause of a leak or of a way that is shut, where its pattern is one that is known from published bugs."""

from i18n import msg, msg_together
from mask_check.declared import Declared

BLOCKS = tuple(2**power for power in range(2, 10))


def with_cause(words: str, pairs: list[tuple[int, int]], declared: Declared, *, short: bool = True) -> str:
    """The words, and what cause_of says."""
    cause = cause_of(pairs, declared, short=short)
    return msg_together([words, cause]) if cause else words


def cause_of(pairs: list[tuple[int, int]], declared: Declared, *, short: bool = True) -> str:
    """pairs (output, token) that leak: all of the short row, or those of some tokens of a longer row. "" where no
    pattern is known."""
    layers, length = len(declared.layers), len(declared.layers[0])
    ahead = [token - output for output, token in pairs]
    if not ahead:
        return ""
    closed_ahead = int((~declared.reach).triu(1).sum())
    if short and length > 2 and closed_ahead and sum(one > 0 for one in ahead) == closed_ahead:
        return msg("Likely cause: no causal mask is applied at all (is_causal is not set, or attn_mask is None).")
    if min(ahead) > 0 and max(ahead) <= layers:
        return msg("Likely cause: off by one, the mask's diagonal lies one position too far right (diagonal=1).")
    if min(ahead) > 0:
        same = [size for size in BLOCKS if all(output // size == token // size for output, token in pairs)]
        if same and same[0] < length and max(ahead) > layers:
            return msg("All of them lie within blocks of {size} tokens: what is shared in a block?", size=same[0])
    farthest = max((output - token for output, token in declared.reach.nonzero().tolist()), default=0)
    if max(ahead) < 0 and farthest < -max(ahead) and farthest + layers >= -min(ahead):
        return msg("Likely cause: off by one, the window is one token too wide (<= in place of <).")
    return ""
