"""The masks by the names that readers see."""

from collections.abc import Iterable

from model.language import N_, say, say_all

NAMES = {
    "causal": N_("causal"),
    "padding": N_("padding"),
    "window": N_("window"),
    "chunk": N_("chunk"),
    "sliding": N_("sliding"),
    "stride": N_("stride"),
    "documents": N_("documents"),
    "prefix": N_("prefix"),
    "sinks": N_("sinks"),
    "drawn": N_("drawn"),
}


def mask_name(name: str) -> str:
    """Of the mask that MaskSpec calls so."""
    return say(NAMES[name])


def mask_names(names: Iterable[str]) -> str:
    """Of several, as one phrase: "causal and padding"."""
    return say_all([mask_name(name) for name in names])
