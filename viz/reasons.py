"""What blocks a cell, in the words of a tooltip, and the rows of which nothing is left."""

from dataclasses import dataclass

import numpy as np

from i18n import say
from model.heads.view import HeadView
from viz.mask_styles import mask_name, mask_names

MOST_SPELLED = 6_400  # cells of a picture whose every cell has its own words: more of them would be megabytes


@dataclass(frozen=True, eq=False)
class Reasons:
    """words: what a tooltip says of a blocked cell; %{text} in it stands for the cell's own entry of text [Q,K]."""

    words: str
    text: np.ndarray | None = None


def reasons(view: HeadView) -> Reasons:
    """One reason is said as it is; of several a small picture spells out each cell's.

    A large one gives each mask a digit and each cell the digits of the masks that block it: 13 is the first and the
    third. Where there are more masks than digits, it numbers the combinations instead.
    """
    groups = blocked_groups(view)
    if len(groups) == 1:
        return Reasons(groups[0][0])
    if view.weights.size <= MOST_SPELLED:
        text = np.full(view.weights.shape, "", object)
        for words, cells in groups:
            text[cells] = words
        return Reasons("%{text}", text)
    named = [(mask_name(name), mask) for name, mask in view.blocked.items() if mask.any()]
    if len(named) > 9:
        named = [(mask_names(names), cells) for names, cells in blocking(view)]
    number = np.zeros(view.weights.shape, np.uint32)
    for digit, (_, cells) in enumerate(named, 1):
        number[cells] = number[cells] * 10 + digit
    key = say(", ").join(f"{digit} {name}" for digit, (name, _) in enumerate(named, 1))
    words = say("blocked by {masks} ({key})", masks="%{text}", key=key)
    return Reasons(words, number.astype(np.min_scalar_type(number.max())))


def blocked_groups(view: HeadView) -> list[tuple[str, np.ndarray]]:
    """The blocked cells by what blocks them: ("blocked by causal and padding", bool [Q,K]) and so on."""
    return [(say("blocked by {masks}", masks=mask_names(names)), cells) for names, cells in blocking(view)]


def blocking(view: HeadView) -> list[tuple[list[str], np.ndarray]]:
    """The same by the masks themselves: (["causal", "padding"], bool [Q,K]) and so on."""
    if not view.blocked:
        return []
    bits = sum(mask.astype(np.int64) << bit for bit, mask in enumerate(view.blocked.values()))
    return [
        ([name for bit, name in enumerate(view.blocked) if found >> bit & 1], bits == found)
        for found in np.unique(bits).tolist()
        if found
    ]


def empty_runs(view: HeadView) -> list[tuple[int, int]]:
    """First and last row of each run of rows that have no key to attend to."""
    empty = view.empty_rows()
    edges = np.flatnonzero(np.diff(np.r_[False, empty, False]))
    return [(int(first), int(last) - 1) for first, last in edges.reshape(-1, 2)]
