"""The signs that tokens' labels are written with, and labels that are too long."""

from collections.abc import Iterable

from i18n import N_, say

SIGNS = {
    "·": N_("· begins a token that has a space before its first letter"),
    "⏎": N_("⏎ is the end of a line"),
    "⟨": N_("⟨E6⟩ is a byte that is no character by itself"),
    "<pad>": N_("<pad> fills up a line that is shorter than another"),
    "<start>": N_("<start> is put before every text, as when the model was trained"),
}


def signs(labels: Iterable[str]) -> str:
    """What the signs in these labels stand for; nothing where there are none."""
    text = "".join(labels)
    said = [say(meaning) for sign, meaning in SIGNS.items() if sign in text]
    clauses = say("; ").join(said)
    return say("{clauses}.", clauses=clauses) if said else ""


def shortened(label: str, most: int) -> str:
    """So many characters at the most, the last of them "…" where some are cut."""
    return label if len(label) <= most else label[: most - 1] + "…"
