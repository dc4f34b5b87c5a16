"""What every page begins with: its title and its style."""

import json
from pathlib import Path

import streamlit as st

from ui import choices
from viz.palette import MASK_COLOURS, OPENER_COLOURS
from viz.room import MARGIN, WIDE

ICON = Path(__file__).parent / "icon.png"  # a picture of ours: Streamlit fetches its icons' from the network

PAGES = {  # in the order in which they are read
    "app.py": ("Explore", ":material/grid_view:"),
    "pages/mask_lab.py": ("Mask Lab", ":material/draw:"),
    "pages/layers.py": ("Across layers", ":material/layers:"),
    "pages/ablation.py": ("Heads off", ":material/power_settings_new:"),
    "pages/compare.py": ("A and B", ":material/compare:"),
    "pages/padding.py": ("Padding", ":material/align_horizontal_right:"),
    "pages/bug_clinic.py": ("Bug clinic", ":material/bug_report:"),
    "pages/obey.py": ("Obey", ":material/rule:"),
    "pages/why_causal.py": ("Why causal", ":material/visibility_off:"),
    "pages/generation.py": ("Generation", ":material/play_arrow:"),
    "pages/cross_attention.py": ("Cross-attention", ":material/compare_arrows:"),
    "pages/pixels.py": ("Pixels", ":material/grid_on:"),
}

NATIVE_SWITCHES = ("causal", "padding", "window", "chunk")
COMPOSED_SWITCHES = ("sliding", "stride", "documents", "prefix", "sinks", "drawn")  # compose.ROWS and the drawing

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}  # plotly's settings

ROOM = """
  [class*="st-key-ROOM_"] { container-type: inline-size; overflow-x: auto; }
  [class*="st-key-ROOM_"] > * {
    --side: clamp(15rem, min((100cqw - ACROSSpx) / WIDE, 100dvh - ABOVEpx), 70rem); }
  [class*="st-key-ROOM_"] .stPlotlyChart {
    width: calc(var(--side) * WIDE + ACROSSpx) !important; height: calc(var(--side) + DOWNpx) !important; }
"""
STYLE = """
<style>
  .block-container { padding: 3rem 1.6rem 2rem; max-width: 2000px; }
  div:has(> .st-key-early), div:has(> [class*="st-key-listening_"]) { display: none; }
  [data-testid="stHeader"] { background: transparent; height: 2.8rem; min-height: 2.8rem; }
  [data-testid="stSidebarHeader"] { height: 2.2rem; padding-bottom: 0; margin-bottom: 0; }
  section[data-testid="stSidebar"] { width: 290px !important; }
  table.numbers { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
  table.numbers th { text-align: left; font-weight: 600; padding: .15rem .4rem; opacity: .75; }
  table.numbers td { padding: .12rem .4rem; border-top: 1px solid rgba(128,128,128,.22); white-space: nowrap; }
  table.numbers .number { text-align: right; }
  table.numbers td.track { width: 28%; padding-left: 0; }
  table.numbers .bar { height: .55rem; border-radius: 2px; min-width: 1px; }
  table.numbers .token { font-family: monospace; max-width: 7rem; overflow: hidden; text-overflow: ellipsis; }
  .swatch, SWITCHES {
    content: ""; display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em;
    align-self: center; vertical-align: -.05em; }
  p.sentence { min-height: 3em; font-size: 1.05rem; line-height: 1.5; margin: 0 0 .3rem; border-radius: 4px;
    animation: changed 1.2s; }
  p.formula, p.counts { margin: 0; font-size: .95rem; font-variant-numeric: tabular-nums; }
  p.formula b { margin-right: .8em; }
  p.key { font-size: .875rem; opacity: .8; margin: 0; }
  [data-testid="stCaptionContainer"] p { color: inherit; }
  [data-testid="stCaptionContainer"] { color: inherit; opacity: .8; }
  ROOMS
  [data-testid="stCheckbox"] label:has(input[role="switch"]:not(:checked)) > div:first-of-type {
    background: #6b7280 !important; }
  [data-testid="stPageLink-NavLink"]:focus-visible { background: transparent; outline: 2px solid currentColor; }
  .js-plotly-plot text { fill: currentColor !important; }
  @keyframes changed { from { background: rgba(240,163,94,.4); } to { background: transparent; } }
  @media (prefers-reduced-motion: reduce) { p.sentence { animation: none; } }
</style>
"""


def _room(name: str, wide: float, above: int) -> str:
    """The size of viz.head's figures in a container of this name: a square, and what stands beside it.

    above: pixels over the picture, as the page opens.
    """
    across, down = MARGIN["l"] + MARGIN["r"], MARGIN["t"] + MARGIN["b"]
    numbers = {"ROOM": name, "WIDE": wide, "ACROSS": across, "DOWN": down, "ABOVE": above + down}
    style = ROOM
    for word, number in numbers.items():
        style = style.replace(word, str(number))
    return style


def set_up(title: str) -> None:
    """Call first on every page."""
    choices.begin_page(title)
    st.set_page_config(f"Unmask · {title}", ICON, layout="wide", initial_sidebar_state="expanded")
    rooms = _room("pair", WIDE, 195) + _room("one", 1, 195)
    switches = {name: f".st-key-{name} label::before" for name in NATIVE_SWITCHES}
    switches |= {name: f".st-key-mask_{name}_on label::before" for name in COMPOSED_SWITCHES}
    colours = OPENER_COLOURS | MASK_COLOURS
    swatches = " ".join(f"{rule} {{ background: {colours[name]}; }}" for name, rule in switches.items())
    st.html(
        STYLE.replace("SWITCHES", ", ".join(switches.values()))
        .replace("ROOMS", rooms)
        .replace("</style>", swatches + "</style>")
    )
    with st.sidebar:
        for path, (label, icon) in PAGES.items():
            st.page_link(path, label=label, icon=icon)
    with st.container(key="early"):
        _fetch_early("PlotlyChart")


def _fetch_early(part: str) -> None:
    """Let the browser fetch and compile a part of Streamlit's own page while the server still imports torch.

    Plotly's is 5 MB of JavaScript, asked for otherwise only once a chart arrives. Does nothing where a later Streamlit
    keeps its parts elsewhere.
    """
    scripts = Path(st.__file__).parent / "static" / "static" / "js"
    for path in sorted(scripts.glob(f"{part}.*.js")):
        address = json.dumps(f"static/js/{path.name}")
        script = f"<script>import(new URL({address}, document.baseURI)).catch(() => {{}})</script>"
        st.html(script, unsafe_allow_javascript=True)


def is_dark() -> bool:
    """Whether the reader sees the dark theme; light until the browser has told."""
    return st.context.theme.type == "dark"
