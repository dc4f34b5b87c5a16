"""What the browser parts say: a view's packet brings it in the reader's language, packet.js fills the places."""

import json
import struct
import zlib
from typing import Any

from i18n import N_, say


def packed(header: dict[str, Any], *planes: bytes) -> bytes:
    """The length of a JSON header (4 bytes, little-endian), the header, then the planes, deflated as one."""
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + zlib.compress(b"".join(planes), 1)


_SHARED = {"comma": N_(", ")}
_CELLS = _SHARED | {
    "weight": N_("weight {weight}"),
    "cell": N_("{query} attends to {key} · {cell}"),
    "looks": N_("{token} attends to {tokens}."),
    "looked": N_("{token} is attended to by {tokens}."),
    "looks_blocked": N_("{token} attends to {tokens}; {count} blocked."),
    "looked_blocked": N_("{token} is attended to by {tokens}; {count} blocked."),
    "looks_nowhere": N_("{token} attends to nothing: every cell is blocked."),
    "looked_nowhere": N_("{token} is attended to by nothing: every cell is blocked."),
    "blocked_here": N_("{token}: every cell shown is blocked."),
    "more": N_("{tokens} and {count} more"),
}
WORDS = {
    "heatmap": _CELLS
    | {
        "bar_weight": N_("weight"),
        "bar_change": N_("change"),
        "change": N_("change {change}"),
        "scored": N_("{cell} · scaled score {score}"),
        "alt": N_("{name}: {queries} queries in rows, {keys} keys in columns."),
        "hint": N_("Point at a cell, or move over the cells with the arrow keys."),
    },
    "tokens": _CELLS
    | {
        "queries": N_("The text of the queries"),
        "keys": N_("The text of the keys"),
        "text": N_("The text, token by token. Arrow keys move the query, Enter pins it."),
        "ways": N_("Highlight the tokens that the query"),
        "at": N_("attends to"),
        "by": N_("is attended to by"),
        "values": N_("Values"),
        "usage": N_("Point: highlight. Click: query. Shift-click or Enter: pin."),
        "pinned": N_("Pinned: {token}"),
        "pin": N_("Pin {token}"),
        "unpin": N_("Unpin {token}"),
    },
    "arcs": _CELLS
    | {
        "alt": N_(
            "Which token attends to which: queries on the left, keys on the right. Up and down arrow keys move the "
            "query."
        ),
        "least": N_("The smallest weight drawn"),
        "from": N_("Weights from"),
        "hide": N_("Hide the first token"),
        "blocked": N_("{key} · {cell} for {query}"),
        "lines": N_("{count} lines, the strongest of {all} weights of {least} or more; the largest is {largest}."),
        "hidden": N_("The first token is left out: the other weights stay as they are, nothing is renormalised."),
    },
    "overview": _SHARED
    | {
        "name": N_("Attention of every head"),
        "dim": N_("Dim by"),
        "nothing": N_("off"),
        "sort": N_("strongest first"),
        "head": N_("Layer {layer}, head {head}"),
        "large": N_("Layer {layer}, head {head} (shown large)"),
        "measured": N_("{head}: {measures}"),
        "legend": N_("{letters}: at least {share} of the head's attention on this row."),
        "alt": N_(
            "Attention of every head: {layers} layers in rows, {heads} heads in columns. Arrow keys move, Enter "
            "chooses a head."
        ),
    },
    "mask": {
        "name": N_("The composed mask"),
        "tools": N_("What a stroke does"),
        "draw": N_("Draw"),
        "press": N_(
            "A swipe scrolls the page. Press Draw to draw on the cells; touch a cell to read why it is blocked."
        ),
        "block": N_("Block"),
        "open": N_("Open"),
        "erase": N_("Erase"),
        "undo": N_("Undo"),
        "clear": N_("Clear"),
        "cell": N_("{query} attends to {key}: {why}"),
    },
    "images": _SHARED
    | {
        "caption": N_("The caption, word by word"),
        "every": N_("Every head, the best localization first"),
        "word": N_(
            "“{word}” (probability {chance}): {head} gives {share} of its attention to the image, most to {patch}: "
            "{most}."
        ),
        "patch": N_("{patch}, in {head}: {words}."),
    },
    "pixels": {
        "name": N_("A picture of 8 by 8 pixels"),
        "level": N_("{pixel}: level {level}"),
        "written": N_("{pixel}: the model writes this one"),
        "greys": N_("Grey level to draw with"),
        "grey": N_("level {level}"),
        "paper": N_("level {level}, paper"),
        "clear": N_("Clear"),
    },
}


def words(*views: str) -> dict[str, str]:
    """Of views out of WORDS, in the reader's language, by their names there."""
    return {name: say(sentence) for view in views for name, sentence in WORDS[view].items()}
