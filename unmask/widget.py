"""A view as a live widget: Jupyter, VS Code, marimo. anywidget is asked for here alone."""

from typing import Any

from viz.components import VIEWS, source, style
from viz.saved.standalone import Canvas

PICKS = {"overview": ("pick",), "heatmap": ("query",), "tokens": ("query", "pins", "towards"), "arcs": ("query",),
         "mask": ("drawn",), "pixels": ("pick",)}  # fmt: skip


def widget(canvas: Canvas) -> Any:
    """Its trait `packet` is what it draws; a trait for each of the view's PICKS is None until something is picked.

    Raises ImportError, saying how to get it, where anywidget is not installed.
    """
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise ImportError("expected anywidget for a live widget: pip install unmask[notebook]") from None
    picks = {name: traitlets.Any(None, allow_none=True).tag(sync=True) for name in PICKS[canvas.view]}
    traits = {
        "_esm": source(*VIEWS[canvas.view], "anywidget.js"),
        "css": traitlets.Unicode(source("widget.css") + style(canvas.view)).tag(sync=True),
        "packet": traitlets.Bytes().tag(sync=True),
        "view": traitlets.Unicode(canvas.view).tag(sync=True),
    }
    made = type("View", (anywidget.AnyWidget,), traits | picks)
    return made(packet=canvas.packet)
