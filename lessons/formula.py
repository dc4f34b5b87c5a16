"""A lesson's formula: LaTeX, as MathML for pages without Streamlit, and what is none."""

import re
from html import unescape
from xml.etree import ElementTree

from i18n import say

MORE_THAN_A_FORMULA = re.compile(r"\\(href|url|html\w*|style|class|include\w*)\b")  # links and styles of a stranger's
CHILDREN = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3}
BRACES = re.compile(r"\{[^{}]*\}")  # with no other pair inside
APART = re.compile(r"\\begin\b.*\\end\b|\\.", re.DOTALL)  # where & stands between columns, and escaped signs
STRAY = re.compile(r"[&\\]")  # that the library takes for text, and KaTeX for a mistake
UNKNOWN = re.compile(r"\\[A-Za-z]|&$")  # what the library leaves of commands that it does not know


def mathml(latex: str) -> str:
    """A formula as MathML, all text escaped; "" for commands that the library does not know, and KaTeX may. Raises
    ValueError for what is no formula."""
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
        one.text = unescape(one.text or "")  # the library writes signs as references, and escapes no other text
    return ElementTree.tostring(tree, encoding="unicode")
