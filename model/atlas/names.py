"""What an atlas measures of a head, by name. No torch in it: pictures need these too."""

from dataclasses import dataclass

from i18n import N_


@dataclass(frozen=True)
class Measure:
    """words: what a query's number is, a sentence. unit: "share" (0 to 1), "tokens" or "bits". names: what a head is
    called that does it with more than half of its attention; "" for a measure that names nothing. title, words, unit
    and names are to be said where they are shown.
    """

    title: str
    words: str
    unit: str = "share"
    names: str = ""


TOKENS, BITS = N_("tokens"), N_("bits")
MEASURES = {
    "previous": Measure(
        N_("previous token"),
        N_("Weight on the token just before."),
        names=N_("previous token"),
    ),
    "first": Measure(N_("first token"), N_("Weight on the row's first token."), names=N_("first token")),
    "same": Measure(N_("itself"), N_("Weight on the query's own position."), names=N_("itself")),
    "duplicate": Measure(
        N_("duplicate token"),
        N_("Weight on earlier places of the same token, where there are any."),
        names=N_("duplicate token"),
    ),
    "induction": Measure(
        N_("induction"),
        N_(
            "Weight on the token after the last earlier place of the same token, where there is one (Olsson et al. "
            "2022)."
        ),
        names=N_("induction"),
    ),
    "punctuation": Measure(N_("punctuation"), N_("Weight on punctuation, where some can be seen.")),
    "leak": Measure(N_("later tokens"), N_("Weight on later tokens: the leak, 0 under a causal mask.")),
    "peak": Measure(N_("sharpness"), N_("The largest weight on one token, the row's first left out.")),
    "distance": Measure(N_("mean distance"), N_("How far away the keys are, by weight."), TOKENS),
    "entropy": Measure(N_("entropy"), N_("Entropy of the weights: 0 is one token, 3 is as even as 8."), BITS),
}
NAMES = tuple(MEASURES)
