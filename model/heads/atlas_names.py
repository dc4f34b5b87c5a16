"""What an atlas measures of a head, by name. No torch in it: pictures need these too."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """words: what a query's number is. unit: "share" (0 to 1), "tokens" or "bits". names: what a head is called that
    does it with more than half of its attention; "" for a measure that names nothing."""

    title: str
    words: str
    unit: str = "share"
    names: str = ""


MEASURES = {
    "previous": Measure("previous token", "weight on the token just before", names="previous token"),
    "first": Measure("first token", "weight on the row's first token", names="first token"),
    "same": Measure("itself", "weight on the query's own position", names="itself"),
    "duplicate": Measure(
        "duplicate token",
        "weight on earlier places of the same token, where there are any",
        names="duplicate token",
    ),
    "induction": Measure(
        "induction",
        "weight on the token after the last earlier place of the same token, where there is one (Olsson et al. 2022)",
        names="induction",
    ),
    "punctuation": Measure("punctuation", "weight on punctuation, where some can be seen"),
    "leak": Measure("later tokens", "weight on later tokens: the leak, 0 under a causal mask"),
    "peak": Measure("sharpness", "the largest weight on one token, the row's first left out"),
    "distance": Measure("mean distance", "how far away the keys are, by weight", "tokens"),
    "entropy": Measure("entropy", "entropy of the weights: 0 is one token, 3 is as even as 8", "bits"),
}
NAMES = tuple(MEASURES)
