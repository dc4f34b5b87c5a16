"""The browser parts that plotly cannot do: plain ES modules and CSS, read here as text."""

from pathlib import Path

OVERVIEW_HTML = """
<div class="view overview"></div>
"""

MASK_HTML = """
<div class="mask">
  <div class="tools">
    <span role="group" aria-label="What a stroke does">
      <button data-tool="block" aria-pressed="true">Block</button>
      <button data-tool="open" aria-pressed="false">Open</button>
      <button data-tool="erase" aria-pressed="false">Erase</button>
    </span>
    <span class="gap"></span>
    <button data-do="undo" disabled>Undo</button>
    <button data-do="clear" disabled>Clear</button>
  </div>
  <canvas tabindex="0" role="application" aria-label="The composed mask"></canvas>
  <div class="why" aria-live="polite"></div>
</div>
"""

GROWING_HTML = """
<div class="growing">
  <canvas tabindex="0" role="img" aria-label="Attention of one head"></canvas>
  <div class="cell" aria-live="polite"></div>
</div>
"""

TOKENS_HTML = """
<div class="view tokens"></div>
"""

ARCS_HTML = """
<div class="view arcs"></div>
"""

VIEWS = {  # a view's ES module gives draw(element, data, onPick); what it is made of, in order
    "overview": ("packet.js", "overview.js"),
    "heatmap": ("packet.js", "cells.js", "heatmap.js"),
    "tokens": ("packet.js", "cells.js", "tokens.js"),
    "arcs": ("packet.js", "cells.js", "arcs.js"),
}


def source(*names: str) -> str:
    """The text of files of this folder, one after another: packet.js before what needs it."""
    return "\n".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in names)
