"""A sentence before translation, with the values of its placeholders: computed once, shown in each user's language."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from i18n import N_


@dataclass(frozen=True)
class Statement:
    """An untranslated sentence: marked by N_, or only placeholders. values: texts, numbers, or one or more Statements.

    viz/lessons/screen.py translates it, with the numbers as {x:percent} 41.3%, {x:chance}, {x:nats} 2.47,
    {x:perplexity} 12 (of a loss), {x:weight}, {x:change} −0.43, {x:decimal} 0.10, {x:count} 2,025.
    """

    sentence: str
    values: Mapping[str, Any] = field(default_factory=dict)


MODELS = {  # titles by the models' names; others are shown by their names
    "story": N_("The story model"),
    "dates": N_("The dates model"),
    "twin trained with the mask": N_("The model trained with the mask"),  # not shown: the names
    "twin trained without the mask": N_("The model trained without the mask"),  # not shown
}
OTHER, SHOWN = 8, 9  # in place of a choice: another number was typed; the answer was requested
