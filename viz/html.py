"""Builders of small HTML elements, which escape text from users."""

import base64
import math
import re
from collections.abc import Iterable
from unicodedata import east_asian_width

from markupsafe import Markup, escape

from i18n import N_, listed, say
from viz.mask_styles import STYLES, mask_name

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SIGNS = {  # regular expression of a special sign in token labels -> its explanation
    "·": N_("· begins a token that has a space before its first letter"),
    "⏎": N_("⏎ is the end of a line"),
    "⟨[0-9A-F]{2}( [0-9A-F]{2})*⟩": N_("{sign} stands for one or more bytes that form no character alone"),
    "⟨id [0-9]+⟩": N_("{sign} is an id that the tokenizer has no token for"),
    "<pad>": N_("<pad> is the padding token: it fills up shorter lines, and begins the target of some models"),
    "<start>": N_("<start> is put before every text, as in training"),
}


def fixed(value: float, digits: int) -> str:
    """Write a number with `digits` digits after the point, "−" (U+2212) and no minus at 0: "−1.50", "0.00", "−∞"."""
    text = f"{float(value):.{digits}f}".replace("inf", "∞")
    return text.replace("-", "−") if text.strip("-0.") else text.lstrip("-")


def signed(value: float, digits: int = 3) -> str:
    """Write a number as `fixed` does, with a plus sign if it is greater than 0 after rounding."""
    text = fixed(value, digits)
    return text if text.startswith("−") or not text.strip("0.") else f"+{text}"


def rounded(value: float) -> str:
    """Write a number with at most two digits after the point, without trailing zeros, or NaN, ∞ or −∞."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return fixed(value, 2).rstrip("0").rstrip(".") or "0"


def power_of_ten(value: float, digits: int = 2) -> str:
    """Write a number with a power of ten: 0.00001073 -> "1.1 × 10⁻⁵"; narrow spaces keep it on one line."""
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}\u202f×\u202f10{str(int(power)).translate(SUPERSCRIPT)}"


def amount(difference: float) -> str:
    """Write a difference: 8.0568 -> "8.1"; 0.00001073 -> "1.1 × 10⁻⁵"; 0 -> "0"; NaN or infinite -> "∞"."""
    if math.isnan(difference) or math.isinf(difference):
        return "∞"
    if difference == 0:
        return "0"
    if difference >= 9.95:
        return f"{difference:,.0f}"
    if difference >= 0.00995:
        return f"{difference:.1f}" if difference >= 0.995 else f"{difference:.2g}"
    return power_of_ten(difference)


def signs(labels: Iterable[str]) -> str:
    """Explain the signs that occur in these labels; "" if there are none."""
    text = "".join(labels)
    seen = ((re.search(sign, text), meaning) for sign, meaning in SIGNS.items())
    clauses = [say(meaning, sign=found[0]) for found, meaning in seen if found]
    return say("{clauses}.", clauses=listed(clauses, N_("; "))) if clauses else ""


def letters(text: str) -> int:
    """Return the width of a text in letters; a wide (e.g. Chinese) character counts as two."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def shortened(label: str, most: int) -> str:
    """Cut a label to at most `most` letters, the last of them "…"."""
    if letters(label) <= most:
        return label
    cut = label[: most - 1]
    while letters(cut) > most - 1:
        cut = cut[:-1]
    return cut + "…"


def escaped(label: str) -> str:
    """Escape a text for plotly, whose labels are a subset of HTML: it decodes &lt;, &gt; and &amp;, but no quotes."""
    return label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def filled(sentence: str, **values: object) -> Markup:
    """Fill the {placeholders} of a sentence that is trusted HTML; values are escaped unless they are Markup."""
    return Markup(sentence).format(**values)


def paragraph(words: str, kind: str = "sentence") -> Markup:
    """Return a <p> of words, escaped unless they are Markup. kind: its class, "sentence" or "key"."""
    return tag("p", words, class_=kind)


def swatch(colour: str) -> Markup:
    """Return a small square filled with a CSS colour."""
    return Markup('<span class="swatch" style="background:{}"></span>').format(colour)


def named(mask: str) -> Markup:
    """Return a square in a mask's colour, followed by the mask's name."""
    return swatch(STYLES[mask].colour) + mask_name(mask)


def tag(name: str, content: object = "", **attributes: object) -> Markup:
    """Return an HTML element; its content is escaped unless it is Markup. class_ is the attribute class."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    if name in ("img", "input"):  # void elements: no content, no end tag
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{escape(content)}</{name}>")


def svg_image(parts: Iterable[str], width: int, height: int, alt: str = "", **look: object) -> Markup:
    """Return an SVG drawing as an <img>, which Streamlit's HTML sanitiser allows."""
    sizes = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    drawn = tag("svg", join(parts), xmlns="http://www.w3.org/2000/svg", **sizes, **look)
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    return tag("img", src=source, alt=alt, width=width, height=height)


def numbered(labels: Iterable[str], first: int = 0) -> list[str]:
    """Prefix each token label with its position: "3: cat". first: the first position."""
    return [f"{position}: {label}" for position, label in enumerate(labels, first)]


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Concatenate the parts, each escaped unless it is Markup. between: the separator."""
    return Markup(between).join(parts)


def td(content: object = "", kind: str = "", **attributes: object) -> Markup:
    """Return a table cell. kind: its class; "number" aligns it to the right."""
    return tag("td", content, **({"class_": kind} if kind else {}), **attributes)


def th(content: object = "", kind: str = "", **attributes: object) -> Markup:
    """Return a header cell of a column or row, or a plain cell if it is empty, for screen readers. kind: its class."""
    return tag("td" if content == "" else "th", content, **({"class_": kind} if kind else {}), **attributes)


def headings(words: Iterable[object], numbers: Iterable[object] = ()) -> list[Markup]:
    """Return the header cells of columns of words, followed by those of columns of numbers."""
    return [*map(th, words), *(th(name, "number") for name in numbers)]


def number_rows(rows: Iterable[Iterable[str]]) -> list[list[Markup]]:
    """Return rows of cells: a text, which wraps, followed by numbers."""
    return [[td(what, "wraps"), *(td(number, "number") for number in numbers)] for what, *numbers in rows]


def track(share: float, colour: str) -> Markup:
    """Return a table cell with a bar whose length is `share`, 0 to 1."""
    width = min(max(share, 0.0), 1.0) * 100
    return td(tag("div", class_="bar", style=f"width:{width:.1f}%;background:{colour}"), "track")


def scrollable(content: str, name: str, kind: str) -> Markup:
    """Wrap content that may be wider than the page so that it scrolls horizontally, by keyboard too. name: for screen
    readers. kind: its class, whose style sets overflow-x."""
    return tag("div", content, class_=kind, tabindex="0", role="region", aria_label=name)


def table(rows: Iterable[Iterable[Markup]], classes: str = "numbers") -> Markup:
    """Return a table of rows of finished cells (`td`, `th`)."""
    return tag("table", join(tag("tr", join(row)) for row in rows), class_=classes)
