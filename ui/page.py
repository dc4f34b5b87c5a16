"""What every page begins with: its title and its style."""

import streamlit as st

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}  # plotly's settings

STYLE = """
<style>
  .block-container { padding: 2.2rem 1.6rem 2rem; max-width: 2000px; }
  [data-testid="stSidebarHeader"] { height: 2.2rem; padding-bottom: 0; margin-bottom: 0; }
  section[data-testid="stSidebar"] { width: 290px !important; }
  table.numbers { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
  table.numbers th { text-align: left; font-weight: 600; padding: .15rem .4rem; opacity: .75; }
  table.numbers td { padding: .12rem .4rem; border-top: 1px solid rgba(128,128,128,.22); white-space: nowrap; }
  table.numbers td.number { text-align: right; }
  table.numbers .bar { height: .55rem; border-radius: 2px; min-width: 1px; }
  table.numbers .token { font-family: var(--st-code-font, monospace); max-width: 9rem; overflow: hidden; text-overflow: ellipsis; }
  .swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em; vertical-align: -.05em; }
  .sentence { font-size: 1.05rem; line-height: 1.5; margin: .1rem 0 .5rem; }
  @keyframes changed { from { background: rgba(240,163,94,.35); } to { background: transparent; } }
</style>
"""


def set_up(title: str) -> None:
    """Call first on every page."""
    st.set_page_config(f"Unmask · {title}", ":material/grid_on:", layout="wide", initial_sidebar_state="expanded")
    st.html(STYLE)


def is_dark() -> bool:
    """Whether the reader sees the dark theme; light until the browser has told."""
    return st.context.theme.type == "dark"
