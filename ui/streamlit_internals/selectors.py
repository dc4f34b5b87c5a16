"""Selectors of elements that Streamlit and Plotly draw, and the names of Streamlit's scripts."""

from functools import cache
from pathlib import Path
from string import Template

import streamlit as st

# Relies on: the data-testid attributes and class names of Streamlit's and Plotly's elements, for which neither has a
# documented selector. A `key=` gives a documented one, st-key-…, wherever it reaches.
SELECTORS = {
    "block_container": ".block-container",
    "button_group": '[data-testid="stButtonGroup"]',
    "caption": '[data-testid="stCaptionContainer"]',
    "checkbox": '[data-testid="stCheckbox"]',
    "code": '[data-testid="stCode"]',
    "column": '[data-testid="stColumn"]',
    "element": '[data-testid="stElementContainer"]',
    "empty": ".stEmpty",
    "expand_sidebar": '[data-testid="stExpandSidebarButton"]',
    "header": '[data-testid="stHeader"]',
    "html": ".stHtml",
    "layout_wrapper": '[data-testid="stLayoutWrapper"]',
    "main": '[data-testid="stMain"]',
    "markdown": '[data-testid="stMarkdownContainer"]',
    "multiselect": '[data-testid="stMultiSelect"]',
    "number_input": '[data-testid="stNumberInputContainer"]',
    "page_link": ".stPageLink",
    "page_link_anchor": '[data-testid="stPageLink-NavLink"]',
    "plot": ".js-plotly-plot",
    "plot_buttons": ".modebar",
    "plot_shapes": ".shapelayer",
    "primary_button": '[data-testid="stBaseButton-primary"]',
    "sidebar": '[data-testid="stSidebar"]',
    "sidebar_content": '[data-testid="stSidebarUserContent"]',
    "sidebar_header": '[data-testid="stSidebarHeader"]',
    "text_input": '[data-testid="stTextInputRootElement"]',
    "vertical_block": ".stVerticalBlock",
    "widget_label": '[data-testid="stWidgetLabel"]',
}
# Relies on: the names of Streamlit's frontend scripts, "<part>.<hash>.js" in its static/static/js/.
EARLY_SCRIPTS = ("PlotlyChart", "BidiComponent", "Selectbox", "TextArea", "Checkbox")


def css(text: str) -> str:
    """Replace $name by SELECTORS[name] in CSS, or in HTML or JavaScript with selectors. Raises KeyError if unknown."""
    return Template(text).substitute(SELECTORS)


@cache
def script_files() -> list[str]:
    """Return the files of EARLY_SCRIPTS, relative to the page's URL; a part that is not found has none."""
    folder = Path(st.__file__).parent / "static" / "static" / "js"
    return [f"static/js/{path.name}" for part in EARLY_SCRIPTS for path in sorted(folder.glob(f"{part}.*.js"))]
