"""A formula in LaTeX as MathML, for pages without Streamlit, which draws it with its own copy of KaTeX."""

import re

from latex2mathml.converter import convert
from markupsafe import Markup

from viz.html import tag

MORE_THAN_A_FORMULA = re.compile(r"\\(href|url|html\w*|style|class|include\w*)\b")  # links and styles of a stranger's


def formula(latex: str) -> Markup:
    """As a block; as it is typed where it cannot be read."""
    try:
        if MORE_THAN_A_FORMULA.search(latex):
            raise ValueError(latex)
        made = Markup(convert(latex, display="block"))  # an XML tree, written with all text escaped
    except Exception:  # noqa: BLE001 - the library raises IndexError, KeyError and a dozen kinds of its own
        made = tag("code", latex)
    return tag("div", made, class_="formula")
