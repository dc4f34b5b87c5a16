"""Elements of all pages: their list and navigation, the style, sentences, and charts with their numbers."""

import gc
import json
import os
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import streamlit as st

from i18n import N_, language, say, together
from model.mask_kinds import KINDS
from serving import logs
from ui import widgets
from ui.markdown import escaped
from ui.sidebar import speech
from ui.streamlit_internals import messages, selectors, session
from viz.components import source
from viz.palette import APART, MARGIN, MASK_COLOURS

if TYPE_CHECKING:  # the page becomes visible before plotly is imported
    from viz.figure_table import FigureTable
    from viz.heatmap import CachedFigure

    Tables = Callable[[], Sequence[FigureTable]]

PICTURE = b64encode((Path(__file__).parent / "icon.png").read_bytes()).decode()
ICON = f"data:image/png;base64,{PICTURE}"  # a data URI: Streamlit loads its icons from the network, and rereads files

SECTIONS = {  # each with its pages, in reading order
    N_("Explore"): {
        "app.py": (N_("Explore"), ":material/grid_view:"),
        "pages/mask_lab.py": (N_("Mask Lab"), ":material/draw:"),
        "pages/layers.py": (N_("Across layers"), ":material/layers:"),
        "pages/ablation.py": (N_("Ablation"), ":material/power_settings_new:"),
        "pages/compare.py": (N_("Compare"), ":material/compare:"),
        "pages/head_atlas.py": (N_("Head atlas"), ":material/scatter_plot:"),
        "pages/circuits.py": (N_("Circuits"), ":material/hub:"),
        "pages/serving.py": (N_("Serving"), ":material/dns:"),
    },
    N_("Learn"): {
        "pages/lessons.py": (N_("Lessons"), ":material/school:"),
        "pages/why_causal.py": (N_("Why causal"), ":material/visibility_off:"),
        "pages/padding.py": (N_("Padding"), ":material/align_horizontal_right:"),
        "pages/generation.py": (N_("Generation"), ":material/play_arrow:"),
        "pages/cross_attention.py": (N_("Cross-attention"), ":material/compare_arrows:"),
        "pages/images.py": (N_("Images"), ":material/image:"),
        "pages/pixels.py": (N_("Pixels"), ":material/grid_on:"),
        "pages/bug_clinic.py": (N_("Bug clinic"), ":material/bug_report:"),
    },
    N_("Tools"): {
        "pages/mask_check.py": (N_("Mask check"), ":material/rule:"),
        "pages/export.py": (N_("Export"), ":material/download:"),
    },
}
PAGES = {path: page for pages in SECTIONS.values() for path, page in pages.items()}

CHART = {  # Plotly's settings
    "displaylogo": False,
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}

_chart = st.components.v2.component(
    "unmask_chart",
    html='<div class="chart" role="figure"></div>',
    js=source("axis_names.js", "plot_axes.js", "plotly_internals.js", "calls.js", "chart.js"),
    isolate_styles=False,  # Plotly adds its styles to the page
)

STYLE = """
<style>
  $block_container { padding: 3rem 1.6rem 2rem; max-width: 2000px; }
  [class*="st-key-listening_"] { display: none; }
  $header { background: transparent; height: 2.8rem; min-height: 2.8rem; }
  @media (max-width: 640px) { /* else its buttons lie on the text that goes under them */
    $header { background: light-dark(#FFFFFF, #14171C); } }
  $sidebar_header { height: 2.2rem; padding-bottom: 0; margin-bottom: 0; }
  section$sidebar { width: 290px !important; }
  .st-key-nav > ::before { display: block; font-size: .8rem; font-weight: 600; opacity: .8; padding: .7rem .5rem 0; }
  .st-key-nav :is(a, $page_link) { height: 1.6rem; min-height: 0; margin: 0; padding: 0 .5rem; }
  .st-key-nav > $element { margin: 0; }
  .st-key-nav > .st-key-language_switch { /* in the strip of the sidebar's header, beside its button */
    position: absolute; z-index: 1; top: .3rem; left: 1.4rem; width: auto; }
  .st-key-language_switch button { height: 1.6rem; min-height: 0; padding: 0 .55rem; }
  .st-key-language_switch button p { font-size: .8rem; }
  $sidebar_content > div > $vertical_block { gap: .7rem; }
  table.numbers { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
  $html:has(> table.numbers) { overflow-x: auto; } /* where it is wider than a phone, it alone moves sideways */
  table.numbers th { text-align: left; font-weight: 600; padding: .15rem .4rem; opacity: .75; word-break: keep-all; }
  table.numbers td { padding: .12rem .4rem; border-top: 1px solid rgba(128,128,128,.22); white-space: nowrap; }
  table.numbers tr:first-child td:empty { border-top: 0; }
  table.numbers td.wraps { white-space: normal; }
  @media (min-width: 641px) { /* of the window: below it Streamlit stacks columns by itself */
    /* older browsers fix what is in a container to it, and a class's strip is fixed to the window */
    $block_container:not(:has(.st-key-lesson_room)) { container: main / inline-size; }
    $button_group > [role] { flex-wrap: wrap; } }
  @container main (max-width: 620px) {
    $column { min-width: 100%; }
    .st-key-overview { max-width: 22rem; } /* else the large head is far below */
    table.fills td { white-space: normal; } }
  @container main (min-width: 900px) { table.numbers:not(.next, .lens-candidates) .token { --widest: 12rem; } }
  table.numbers .number { text-align: right; }
  table.numbers td.track { width: 28%; padding-left: 0; }
  table.numbers .bar { height: .55rem; border-radius: 2px; min-width: 1px; }
  table.numbers .token { font-family: monospace; max-width: var(--widest, 7rem);
    overflow: hidden; text-overflow: ellipsis; }
  .st-key-composed { row-gap: .25rem; column-gap: 1.4rem; }
  .st-key-composed :is($text_input, $number_input) {
    height: 1.75rem; min-height: 0; }
  .swatch, SWITCHES {
    content: ""; display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em;
    align-self: center; vertical-align: -.05em; }
  p.sentence { min-height: 3em; font-size: 1.05rem; line-height: 1.5; margin: 0 0 .3rem; border-radius: 4px;
    animation: changed 1.2s; overflow-wrap: anywhere; }
  p.formula, p.counts { margin: 0; font-size: .95rem; font-variant-numeric: tabular-nums; }
  p.formula b { margin-right: .8em; }
  p.formula .swatch { margin-left: .25em; } /* beside ¬, not on it */
  p.key { font-size: .875rem; opacity: .8; margin: 0; overflow-wrap: anywhere; }
  $caption p { color: inherit; }
  $caption { color: inherit; opacity: .8; }
  $widget_label p { color: light-dark(#1F2328, #E6E8EB) !important; }
  $primary_button:where(:enabled) :is(p, kbd) { color: light-dark(#FFFFFF, #14171C); }
  $markdown h4 { font-size: 1.2rem; font-weight: 600; padding: .6rem 0 .4rem; }
  @container main (min-width: 620.02px) { /* what would be cut off in a narrower column takes a row of its own */
    $column:where(:has(h3)) { min-width: min(100%, 7.3rem); }
    $column:where(:has(table.numbers)) { min-width: min(100%, 12rem); }
    $column:has(.st-key-select_pair) { min-width: min(100%, 19rem); }
    $column:has(table.lens) { min-width: min(100%, 37rem); }
    /* side by side: cells of one size, a colour bar beside the head's alone */
    .st-key-mask_and_head $column {
      --half: calc(50% - .5rem); flex: 1 1 calc(var(--half) + BARpx / 2); }
    .st-key-mask_and_head $column:has(.st-key-one_mask_canvas) {
      flex-basis: calc(var(--half) - BARpx / 2); } }
  [class*="st-key-charted_"], .st-key-canvas_of_mask_canvas { position: relative; }
  [class*="st-key-numbers_of_"] { /* in the corner that the labels of both axes leave empty */
    position: absolute; z-index: 2; left: 0; bottom: 0; width: auto; }
  [class*="st-key-canvas_of_"]:not(.st-key-canvas_of_mask_canvas) > [class*="st-key-numbers_of_"] {
    position: static; margin: 0 0 -.9rem; } /* below the canvas, in the gap before what follows */
  [class*="st-key-numbers_of_"] button { min-height: 1.6rem; padding: .1rem .3rem; }
  [class*="st-key-numbers_of_"] button p { font-size: 0 !important; } /* a name to be heard, presented too */
  .st-key-lab_top { margin-bottom: -.5rem; }
  [class*="st-key-above_"] { /* a title in its picture's margin */
    margin-bottom: -2.9rem; position: relative; z-index: 1; pointer-events: none; }
  .st-key-steps_figure { overflow-x: auto; }
  .st-key-steps_figure > * { min-width: 45rem; }
  $checkbox label:not([data-selected]):has([role="switch"]) > div:first-of-type { background: #6b7280 !important; }
  $page_link_anchor:focus-visible { background: transparent; outline: 2px solid currentColor; }
  .chart:fullscreen { background: light-dark(#FFFFFF, #14171C); }
  $plot { contain: layout style; } /* to measure a label, it need not lay out the whole page */
  $plot text { fill: currentColor !important; }
  @media (hover: none) { .chart:not(:hover) $plot_buttons { display: none; } } /* else over the legend, always */
  $layout_wrapper:has(> $vertical_block > $element:only-child > $empty) { display: none; }
  $multiselect [data-tag] > * { color: light-dark(#FFFFFF, #14171C) !important; }
  $multiselect [data-tag] > button { min-width: 24px; min-height: 24px; }
  $code .token.deleted { color: light-dark(#A40E26, #FF9A94) !important; }
  $code .token.inserted { color: light-dark(#0B5E27, #6FDD8B) !important; }
  [data-moves] { position: relative; }
  [data-moves]:focus-visible { outline: none; }
  [data-moves]:focus-visible::after { content: ""; position: absolute; z-index: 2; inset: 0; pointer-events: none;
    border: 2px solid currentColor; border-radius: 4px; }
  [data-moves][role="group"]:focus-visible::after { inset: -.5rem; }
  [data-moves] > .moves { /* which query it is, while keys move it */
    display: none; position: absolute; z-index: 3; top: 0; right: 0; min-width: 0; max-width: 100%; border-radius: 4px;
    padding: .1rem .5rem; pointer-events: none; font-size: .8rem; font-variant-numeric: tabular-nums;
    background: light-dark(#1F2328, #E6E8EB); color: light-dark(#FFFFFF, #14171C); }
  [data-moves][role="group"] > .moves { top: -.5rem; transform: translateY(-50%); }
  [data-moves]:focus-visible > .moves { display: block; }
  $plot[data-framed] $plot_shapes { visibility: hidden; }
  @media (forced-colors: active) { /* colours that say something */
    .swatch, SWITCHES, table.numbers .bar, table:is(.numbers, .padded) td, $checkbox label > div:first-of-type {
      forced-color-adjust: none; color: CanvasText; }
    $button_group :is([aria-checked="true"], [aria-pressed="true"]) { outline: 2px solid Highlight; } }
  @keyframes changed { from { background: rgba(240,163,94,.4); } to { background: transparent; } }
  @media (prefers-reduced-motion: reduce) { p.sentence { animation: none; } }
</style>
"""


def set_up(title: str) -> None:
    """Set up a page. Must be called first on every page. title: its name in PAGES."""
    logs.redact()
    st.set_option("logger.enableRich", False)  # it would print exceptions' messages, bypassing all loggers
    tcp_nodelay()
    session.check_widget_values()
    messages.cache_page_order()
    widgets.begin_page(title)
    speech.restore()
    st.set_page_config(f"Unmask · {say(title)}", ICON, layout="wide", initial_sidebar_state="auto")
    st.html(_style(language()))
    with st.sidebar, st.container(key="nav", gap=None):
        speech.choose()
        chosen = speech.in_links() or None
        for path, (label, _) in PAGES.items():
            st.page_link(_page(path), label=say(label), query_params=chosen)
        st.html(_script(language()), unsafe_allow_javascript=True)
    _begin()


@cache
def _begin() -> None:
    """Read the settings and import torch, which every page needs, once per process. Their objects are frozen, so that
    no garbage collection visits them again: each would take a tenth of a second during the remaining imports."""
    from serving.settings import Settings  # here, so that the browser loads the page meanwhile

    Settings.of_server()
    import torch  # noqa: F401

    gc.freeze()


@cache
def _page(path: str) -> st.Page:
    """Return the st.Page of a script, cached: given a path, Streamlit checks the file and its icon on every run."""
    return st.Page(path, icon=PAGES[path][1], default=path == "app.py")


def link_to(path: str, label: str) -> None:
    """Draw a link to a page of PAGES, with its icon."""
    st.page_link(_page(path), label=label)


@cache
def _style(_: str) -> str:
    """Return the pages' CSS, cached for each language because it contains the sections' names."""
    switches = {
        name: f".st-key-{name} label::before"
        if name in KINDS and KINDS[name].own
        else f'[class*="st-key-mask_{name}_on"] label::before'
        for name in MASK_COLOURS
    }
    rules = [f"{rule} {{ background: {MASK_COLOURS[name]}; }}" for name, rule in switches.items()]
    first = 2  # the first child is the language switch
    for name, pages in SECTIONS.items():  # each section's name above the first of its links
        rules.append(f'.st-key-nav > :nth-child({first})::before {{ content: "{say(name)}"; }}')
        first += len(pages)
    style = STYLE.replace("SWITCHES", ", ".join(switches.values()))
    style = style.replace("BAR", str(MARGIN["r"] - APART))
    return selectors.css(style).replace("</style>", " ".join(rules) + "</style>")


@cache
def _script(language: str) -> str:
    """Return a script that sets the page's language, for the browser's fonts and screen readers' voices, keeps one
    entry per page in the browser's history, and preloads parts of Streamlit's frontend while the server imports torch.

    Otherwise they are requested only when a chart or a control arrives, among them Plotly's 5 MB of JavaScript.
    """
    addresses = map(json.dumps, selectors.script_files())
    fetched = [f"import(new URL({address}, document.baseURI)).catch(() => {{}})" for address in addresses]
    named = f"document.documentElement.lang = {json.dumps(language)}"
    return f"<script>{selectors.css(source('history.js'))}\n{named}; {'; '.join(fetched)}</script>"


def heading(name: str, *facts: str) -> str:
    """Return Markdown: a page's name and, in small letters, facts about what is shown."""
    return f"### {name}\u2002:small[{' · '.join(facts)}]" if facts else f"### {name}"


def sentence(html: str) -> str:
    """Return HTML: the sentence at the top of a page or of a section."""
    return f'<p class="sentence">{html}</p>'


def note(html: str) -> str:
    """Return HTML: a line below a picture or a table."""
    return f'<p class="key">{html}</p>'


def chart(
    figure: "CachedFigure",
    key: str,
    alt: str,
    *,
    height: int | None = None,
    callbacks: Mapping[str, Any] | None = None,
    tables: "Tables | None" = None,
) -> None:
    """Draw a figure of viz, with its numbers as a table that is made when it is opened.

    alt: the alternative text. height: in pixels, instead of the figure's own. callbacks: on_pick_change and
    on_zoom_change for what chart.js sends. tables: the numbers, if not those of the figure itself.
    """
    callbacks = callbacks or {}
    data = {
        "figure": figure.text,
        "height": height or figure.to_dict()["layout"].get("height"),
        "alt": alt,
        "config": CHART,
        "script": selectors.script_files()[0],
        "picks": "on_pick_change" in callbacks,
        "zooms": "on_zoom_change" in callbacks,
    }

    def own_tables() -> "list[FigureTable]":
        from viz.figure_table import figure_tables  # imports plotly and pandas, which this module avoids

        return figure_tables(figure)

    with with_tables(key, tables or own_tables, alt):
        _chart(data=data, key=key, **callbacks)


def fragment(part: Callable[..., None]) -> Callable[..., None]:
    """Wrap a part of a page as a Streamlit fragment: a changed mask or head reruns it without the sidebar and the text.

    Streamlit rejects what such a rerun writes to the sidebar unless the fragment wrote there in the last run of the
    whole page. So it does that first of all, because that run may end early with an error.
    """

    def shown(*arguments: Any) -> None:
        st.sidebar.empty()
        part(*arguments)

    return st.fragment(shown)


@contextmanager
def with_tables(key: str, tables: "Tables", alt: str = "") -> Iterator[None]:
    """Wrap the drawing of a picture with this key: add its numbers as tables, made when opened. alt: a chart's text."""
    with st.container(key=f"{'charted' if alt else 'canvas_of'}_{key}", gap=None):
        yield
        look: Any = {"icon": ":material/table:", "type": "tertiary", "on_change": "rerun"}
        slot = st.popover(say("Numbers as a table"), key=f"numbers_of_{key}", **look)
        if slot.open:
            with slot:
                if alt:
                    st.caption(escaped(alt))
                for number, found in enumerate(tables()):
                    st.caption(escaped(together(filter(None, [found.title, found.left_out]))))
                    st.dataframe(found.table, key=f"table_{number}_of_{key}", alt=alt or found.title)


def is_dark() -> bool:
    """Whether the user's theme is dark; False until the browser has reported it."""
    return st.context.theme.type == "dark"


@cache
def tcp_nodelay() -> None:
    """Set TCP_NODELAY, once, on listening sockets, whose connections inherit it, and on open connections."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.fd >= 0 and connection.status in (psutil.CONN_LISTEN, psutil.CONN_ESTABLISHED):
            with socket.socket(fileno=os.dup(connection.fd)) as ours:
                ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
