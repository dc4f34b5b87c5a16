"""What is to be known of a bug."""

from dataclasses import dataclass, replace
from typing import TypedDict

import torch

from i18n import say
from model.attention import ScoreTerms, attention_stages
from model.bug_clinic.case import Attention, AttentionCase


class Options(TypedDict, total=False):
    """What the core takes by name."""

    scale: float | None
    fill: float
    terms: ScoreTerms


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A bug, its mend, and what to say of it. Bugs of one title are variants of each other.

    function: attention with the bug, called as the core is; the core itself where the bug lies outside of attention.
    wrong, right: the lines of code, as many of the one as of the other. signs: what gives it away.
    hint: a nudge for who looks at its heatmap alone; empty where its heatmap shows nothing.
    law: the one of laws.LAWS that tells it best. blames: the mask that the cells it blocks wrongly are put down to.
    needs: what a text or model must have for the bug to do anything. dtype: the precision in which it shows.
    first_layer: the first layer that has it. ahead: how far ahead of a position its loss takes the target.
    tells: the one of evidence.FEATURES that its heatmap shows best; empty where none does.
    """

    key: str
    title: str
    variant: str = ""
    function: Attention = attention_stages
    wrong: str
    right: str
    signs: str
    hint: str = ""
    law: str
    needs: str
    blames: str = "causal"
    dtype: torch.dtype = torch.float32
    first_layer: int = 0
    ahead: int = 1
    tells: str = ""

    @property
    def name(self) -> str:
        """The title, with the variant where there are several, in the reader's language."""
        title = say(self.title)
        return say("{title}: {variant}", title=title, variant=say(self.variant)) if self.variant else title

    def case(self, right: AttentionCase) -> AttentionCase:
        """What a right case is with this bug outside of attention."""
        return replace(right, ahead=self.ahead)
