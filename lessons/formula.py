"""A lesson's formula: LaTeX is validated, and converted to MathML for pages without Streamlit."""

import re
from html import unescape
from xml.etree import ElementTree

from i18n import say

MORE_THAN_A_FORMULA = re.compile(r"\\(href|url|html\w*|style|class|include\w*)\b")  # links and styles: untrusted
CHILDREN = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3}
BRACES = re.compile(r"\{[^{}]*\}")  # with no other pair inside
APART = re.compile(r"\\begin\b.*\\end\b|\\.", re.DOTALL)  # where & separates columns, and escaped characters
STRAY = re.compile(r"[&\\]")  # text for the library, but an error for KaTeX
UNKNOWN = re.compile(r"\\[A-Za-z]|&$")  # what the library makes of commands that it does not support


def mathml(latex: str) -> str:
    """Convert a formula to MathML, all text escaped; "" for commands that the library does not support, but KaTeX may.
    Raises ValueError for anything that is not a formula."""
    from latex2mathml.converter import convert_to_element

    bare, count = re.sub(r"\\.", "", latex), 1
    while count:
        bare, count = BRACES.subn("", bare)
    try:
        tree = convert_to_element(latex, display="block")
        whole = all(len(one) == CHILDREN.get(one.tag, len(one)) for one in tree.iter())
    except Exception:  # noqa: BLE001 - the library raises IndexError, KeyError and a dozen kinds of its own
        whole = False
    stray = re.search(r"[{}]", bare) or STRAY.search(APART.sub("", latex))
    if not whole or stray or MORE_THAN_A_FORMULA.search(latex):
        raise ValueError(say("expected a LaTeX formula, got {formula}", formula=latex[:80]))
    for one in tree.iter():
        if one.tag != "mtext" and UNKNOWN.match(one.text or ""):
            return ""
        one.text = unescape(one.text or "")  # the library writes symbols as references, and does not escape other text
    return ElementTree.tostring(tree, encoding="unicode")
