"""The browser parts that plotly cannot do: plain ES modules and CSS, read here as text."""

from pathlib import Path

OVERVIEW_HTML = """
<div class="overview">
  <canvas tabindex="0" role="application" aria-label="Attention of every head"></canvas>
  <div class="name" aria-live="polite"></div>
</div>
"""


def source(name: str) -> str:
    """The text of a file of this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
