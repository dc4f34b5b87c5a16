"""What a picture and a file say of themselves."""

from collections.abc import Sequence

from viz.view import HeadView


def masks_said(on: Sequence[str], lifted: Sequence[str], *, only_layer: bool) -> str:
    """Which masks hold and which are lifted, in one sentence."""
    said = f"Masks: {', '.join(on) or 'none'}"
    if lifted:
        said += f"; lifted: {', '.join(lifted)}" + (", in this layer only" if only_layer else "")
    return f"{said}."


def caption(*, model: str, number: int, head: int, view: HeadView, masks: str, sha256: str, version: str) -> str:
    """Below a picture, enough to make it again: which model, head and masks, how much of which text."""
    rows, columns = view.weights.shape
    queries, keys = f"{view.first}–{view.first + rows - 1}", f"{view.first_key}–{view.first_key + columns - 1}"
    return (
        f"Attention of layer {number}, head {head} of {model}. {masks} Queries {queries} and keys {keys} are shown. "
        "A row is the token that looks, a column the token looked at; brightness is the square root of the weight, "
        "hatched cells are blocked. "
        f"Text: SHA-256 {sha256[:12]}. Unmask {version}."
    )
