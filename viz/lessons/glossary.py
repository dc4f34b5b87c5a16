"""A small SVG for each word of the glossary, with queries as rows and keys as columns; a lesson's prose, in which these
words open their cards; and its formulas."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import zip_longest

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from lessons.formula import mathml
from lessons.glossary import Term, glossary
from viz.html import join, svg_image, tag
from viz.palette import ALLOWED, MARK, MASK_COLOURS, NOW, SEQUENTIAL

SIDE, CELL = 5, 14  # cells per side, and a cell's side in pixels
LINE = "#868C96"  # visible in both themes
DARK, MIDDLE, BRIGHT = SEQUENTIAL[1], SEQUENTIAL[5], SEQUENTIAL[9]


def _svg(parts: Iterable[Markup], wide: int = SIDE * CELL) -> Markup:
    """Return an SVG without alternative text, since the word beside it says what it shows."""
    return svg_image(parts, wide, SIDE * CELL)


def _box(x: float, y: float, wide: float, tall: float, **style: object) -> Markup:
    return tag("rect", x=round(x, 1), y=round(y, 1), width=round(wide, 1), height=round(tall, 1), **style)


def _cells(colour: Callable[[int, int], str]) -> list[Markup]:
    cells = [(row, column) for row in range(SIDE) for column in range(SIDE)]
    return [
        _box(column * CELL + 1, row * CELL + 1, CELL - 2, CELL - 2, fill=colour(row, column)) for row, column in cells
    ]


def _frame(x: float, y: float, wide: float, tall: float) -> Markup:
    return _box(x + 1, y + 1, wide - 2, tall - 2, fill="none", stroke=MARK, stroke_width=2)


def _text(words: str, x: float, y: float) -> Markup:
    return tag("text", words, x=x, y=y, fill=LINE, font_size=11)


def _weights(row: int, column: int) -> str:
    if column > row:
        return DARK
    return BRIGHT if column == row - 1 or row == 0 else MIDDLE if column == 0 else DARK


def _head() -> Markup:
    tables = []
    for head in range(3):
        bright = [(row * (head + 1) + head) % 4 for row in range(4)]
        tables += [
            _box(head * 26 + column * 6, 23 + row * 6, 5, 5, fill=BRIGHT if bright[row] == column else DARK)
            for row in range(4) for column in range(4)
        ]  # fmt: skip
    return _svg([*tables, _frame(24, 20, 29, 30)], 80)


def _logit() -> Markup:
    bars = [_box(36, 6 + row * 22, wide, 12, fill=NOW) for row, wide in enumerate((54, 36, 18))]
    return _svg([*bars, *(_text(f"{number}", 8, 16 + row * 22) for row, number in enumerate((3, 2, 1)))], 96)


def _nat() -> Markup:
    points = " ".join(
        f"{10 + 90 * p:.1f},{62 + 18 * math.log(p):.1f}" for p in (0.04 + 0.03 * step for step in range(33))
    )
    curve = tag("polyline", points=points, fill="none", stroke=NOW, stroke_width=2)
    axes = tag("path", d="M10 4V62H100", fill="none", stroke=LINE)
    return _svg([axes, curve, _text("0", 1, 64), _text("p = 1", 72, 54)], 104)


def _induction() -> Markup:
    tokens = [_text(letter, 8 + position * 22, 58) for position, letter in enumerate("AB…A")]
    arrow = tag("path", d="M78 44C70 16 42 16 36 42M36 42l-4 -8M36 42l8 -5", fill="none", stroke=MARK, stroke_width=2)
    return _svg([*tokens, arrow], 96)


def _mask(colour: str, blocked: Callable[[int, int], bool]) -> Markup:
    return _svg(_cells(lambda row, column: colour if blocked(row, column) else ALLOWED))


PICTURES: Mapping[str, Callable[[], Markup]] = {
    "query": lambda: _svg([*_cells(_weights), _frame(0, 3 * CELL, SIDE * CELL, CELL)]),
    "key": lambda: _svg([*_cells(_weights), _frame(2 * CELL, 0, CELL, SIDE * CELL)]),
    "head": _head,
    "logit": _logit,
    "nat": _nat,
    "leak": lambda: _mask(NOW, lambda row, column: column > row),
    "induction": _induction,
    "causal": lambda: _mask(MASK_COLOURS["causal"], lambda row, column: column > row),
    "padding": lambda: _mask(MASK_COLOURS["padding"], lambda row, column: column < 2),
}


WORD = "word:"  # the link [heads](word:head) opens the word's card on the page
# addresses that work without the app: of the web, and of a course's pages
WITHOUT_APP = re.compile(r"[a-z][a-z\d+.-]*:|//|#|[^?#]*\.html", re.IGNORECASE)

BUTTON = Markup('<span class="whole"><button type="button" class="word" popovertarget="{}">')
CLOSING = re.compile(r"[,.;:!?)\]”’…，。；：！？）、】」』]*")  # punctuation that must stay on the line of its word


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def prose(markdown: str, name: str, *, app: bool = True) -> Markup:
    """Render a lesson's Markdown; words of the glossary open as cards. name: unique on the page, for the cards' ids.
    app: whether links can open pages of the app; if not, they become text."""
    tokens = _parser().parse(markdown)
    used: dict[str, Term] = {}
    for token in tokens:
        if token.children:
            _link_words(token.children, name, used, app)
    text = Markup(_parser().renderer.render(tokens, _parser().options, {}))
    cards = (
        tag("div", card(word, term), id=f"{name}_{word}", class_="card", popover="auto") for word, term in used.items()
    )
    return tag("div", join([text, *cards]), class_="prose")


def card(word: str, term: Term) -> Markup:
    """Return the card of a word of the glossary: its picture, title and meaning."""
    title = tag("b", term.title)
    return join([PICTURES[word](), tag("div", join([title, tag("p", term.meaning)]))])


def _link_words(tokens: list[Token], name: str, used: dict[str, Term], app: bool) -> None:
    """Turn links to words into buttons that open their cards; links to unknown words and missing pages become text.
    used: filled with the linked words."""
    known, closing = glossary(), []
    for token, after in zip_longest(tokens, tokens[1:]):
        if token.type == "link_open":
            address = str(token.attrGet("href"))
            word = None if app or WITHOUT_APP.match(address) else ""
            if address.startswith(WORD):
                word = address.removeprefix(WORD)
            closing.append(word)
            if word in known:
                used[str(word)] = known[str(word)]
                token.type, token.content = "html_inline", BUTTON.format(f"{name}_{word}")
            elif word is not None:
                token.type, token.content = "html_inline", ""
        elif token.type == "link_close" and (word := closing.pop()) is not None:
            token.type = "html_inline"
            if word in known:
                signs = CLOSING.match(after.content) if after and after.type == "text" else None
                token.content = f"</button>{signs[0] if signs else ''}</span>"
                if signs:
                    after.content = after.content[signs.end() :]


def formula(latex: str) -> Markup:
    """Return a step's formula as MathML, for pages without Streamlit."""
    return tag("div", Markup(mathml(latex)) or tag("code", latex), class_="formula")
