"""A lesson's Markdown as HTML.

Whoever wrote it may be anybody: HTML in it is shown as text, and pictures are not fetched.
"""

from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from lessons.glossary import Term, glossary
from viz.html import join, tag
from viz.lessons.glossary import PICTURES

WORD = "word:"  # [heads](word:head) opens the glossary where it stands

BUTTON = Markup('<button type="button" class="word" popovertarget="{}">')


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


def prose(markdown: str, name: str) -> Markup:
    """Its words open in the reader's language. name: tells the words of this piece from those of others on the page."""
    tokens = _parser().parse(markdown)
    used: dict[str, Term] = {}
    for token in tokens:
        if token.children:
            _link_words(token.children, name, used)
    text = Markup(_parser().renderer.render(tokens, _parser().options, {}))
    return tag("div", join([text, *(_card(word, term, name) for word, term in used.items())]), class_="prose")


def card(word: str, term: Term) -> Markup:
    """A word of the glossary with its picture."""
    title = tag("b", term.title)
    return join([PICTURES[word](), tag("div", join([title, tag("p", term.meaning)]))])


def _link_words(tokens: list[Token], name: str, used: dict[str, Term]) -> None:
    """Make the links to words buttons that open them; links to words that the glossary has not are text."""
    known, closing = glossary(), []
    for token in tokens:
        if token.type == "link_open":
            address = str(token.attrGet("href"))
            word = address.removeprefix(WORD) if address.startswith(WORD) else None
            closing.append(word)
            if word in known:
                used[str(word)] = known[str(word)]
                token.type, token.content = "html_inline", BUTTON.format(f"{name}_{word}")
            elif word is not None:
                token.type, token.content = "html_inline", ""
        elif token.type == "link_close" and (word := closing.pop()) is not None:
            token.type, token.content = "html_inline", "</button>" if word in known else ""


def _card(word: str, term: Term, name: str) -> Markup:
    return tag("div", card(word, term), id=f"{name}_{word}", class_="card", popover="auto")
