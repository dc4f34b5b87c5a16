"""The text of a lesson's step as tokens, and the page's style."""

from collections.abc import Sequence
from string import Formatter
from typing import Any

from markupsafe import Markup

from i18n import say
from lessons.statement import Statement
from viz.html import join, tag
from viz.numbers import chance, number, percent, perplexity

FORMATS = {
    "percent": percent,  # of a share
    "chance": chance,  # of what a softmax gave
    "nats": lambda value: f"{value:.2f}" if value >= 0.005 else "< 0.01",
    "perplexity": perplexity,  # of a loss
    "change": lambda value: f"{value:+.2f}".replace("-", "−"),
    "weight": number,
}


def plain(said: Statement) -> str:
    """The sentence as text. What is typed by anybody stands in it as it is: to be escaped where it is shown."""
    return _IN_PLACES.vformat(say(said.sentence), (), said.values)


class _InPlaces(Formatter):
    """Puts values into named places; a value that is to be said is said as well."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Statement):
            return plain(value)
        if isinstance(value, tuple):
            return " + ".join(map(plain, value))
        return FORMATS[format_spec](value) if format_spec else str(value)


_IN_PLACES = _InPlaces()


STYLE = """
<style>
  .prose { font-size: 1.05rem; line-height: 1.55; max-width: 42rem; }
  div.prose :is(p, li), .verdict p { font-size: inherit !important; }
  div.prose li { margin: 0 0 .4em; }
  .prose p { margin: 0 0 .7em; }
  .prose .word { all: unset; cursor: help; text-decoration: underline dotted 1.5px; text-underline-offset: .22em; }
  .prose .word:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
  .card { position-area: bottom span-right; position-try-fallbacks: flip-block, flip-inline; margin: .4rem 0;
    max-width: min(26rem, 90vw); padding: .8rem 1rem; border: 1px solid rgba(128,128,128,.5); border-radius: 6px;
    background: var(--st-background-color, Canvas); color: inherit; font-size: .95rem; line-height: 1.45; }
  .card:popover-open, .words > div { display: flex; gap: 1rem; align-items: flex-start; }
  .card img, .words img { flex: none; }
  .card p, .words p { margin: .2em 0 0; }
  .words { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: 1.2rem; }
  ol.tokens { list-style: none; display: flex; flex-wrap: wrap; gap: .35rem; padding: 0; margin: 0 0 1rem; }
  ol.tokens li { margin: 0; padding: .2rem .45rem; border-radius: 4px; font-family: monospace; font-size: 1rem;
    background: rgba(128,128,128,.14); }
  ol.tokens small { display: block; opacity: .75; font-size: .72rem; text-align: center; }
  ol.tokens li.query { outline: 2.5px solid #e6399b; }
  .verdict { font-size: 1.05rem; line-height: 1.5; max-width: 42rem; border-left: 4px solid; padding: .1rem .8rem;
    margin: 0 0 .8rem; animation: changed 1.2s; }
  .verdict.right { border-color: #2E8B57; }
  .verdict.wrong { border-color: #C0504D; }
  .verdict.told { border-color: #4A90C2; }
  .verdict p { margin: 0 0 .3em; }
  ol.seen { list-style: none; padding: 0; line-height: 1.4; display: grid; gap: .6rem 2rem;
    grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); }
  ol.seen li { margin: 0; font-size: 1rem; }
  ol.seen li.right b { color: light-dark(#1E6B40, #6FDD8B); }
  ol.seen li.wrong b { color: light-dark(#A40E26, #FF9A94); }
  .st-key-lesson_list :is(a, $page_link) { height: 1.6rem; min-height: 0; padding: 0 .5rem 0 1rem; margin: 0;
    background: transparent; }
  .st-key-lesson_list a p { font-weight: 400; }
  .st-key-lesson_list .st-key-lesson_here a p { font-weight: 700; }
  .st-key-lesson_list > $element { margin: 0; }
  .st-key-lesson_heads { max-width: max(16rem, 100dvh - 18rem); }
  .aim { font-size: 1rem; opacity: .85; margin: 0; }
  .st-key-lesson_nav button p { white-space: nowrap; }
  @media (max-width: 640px) {
    .st-key-lesson_nav { position: fixed; left: 0; right: 0; bottom: 0; z-index: 99; padding: .4rem .6rem;
      background: light-dark(#F5F4F1, #1B1F27); border-top: 1px solid rgba(128,128,128,.3); }
    $column:has(.st-key-lesson_nav) { display: contents; }
    [class*="_lesson_figure"] { --least: 8rem; }
    $block_container { padding-bottom: 5rem; } }
  @media (prefers-reduced-motion: reduce) { .verdict { animation: none; } }
</style>
"""
PRESENTED = """
<style>
  section$sidebar, $expand_sidebar, $header { display: none; }
  $block_container { padding: 1.2rem 2.4rem 1rem; }
  .prose, .verdict { font-size: max(1.15rem, 1.52vw); line-height: 1.42; max-width: none; }
  $block_container h3, $block_container h4 { padding: 0; }
  $block_container h4 { font-size: max(1.3rem, 1.9vw); }
  .st-key-lesson_question p { font-size: max(1.15rem, 1.52vw); }
  [class*="st-key-answer_"] button p { font-size: max(1.05rem, 1.35vw); }
  .st-key-lesson_heads { zoom: var(--zoom); max-width: calc((100dvh - 16.5rem) / var(--zoom)); }
  .st-key-lesson_chart .chart { height: calc(100dvh - 7.5rem) !important; }
  p.key, $caption p { font-size: max(14px, 1.2vw); }
  ol.tokens li { font-size: max(1.1rem, 1.5vw); }
  ol.seen li { font-size: max(14px, 1.2vw); }
  p.aim { font-size: max(14px, 1.2vw); }
  @media (max-width: 640px) { $block_container { padding: 1rem 1rem 5rem; } }
</style>
"""


def tokens(pieces: Sequence[str], query: int | None) -> Markup:
    """A row's tokens with their positions, that of the query highlighted."""
    items = [
        tag("li", join([tag("span", piece), tag("small", place)]), class_="query" if place == query else "other")
        for place, piece in enumerate(pieces)
    ]
    return tag("ol", join(items), class_="tokens")


def seen(lines: Sequence[tuple[str, str, str]]) -> Markup:
    """The questions that a lesson ends with: kind (right, wrong, told, open), the step's title, what is said of it."""
    marks = {"right": "✓", "wrong": "✗"}
    items = [
        tag("li", join([tag("b", f"{marks.get(kind, '·')} {title}"), tag("div", said)]), class_=kind)
        for kind, title, said in lines
    ]
    return tag("ol", join(items), class_="seen")


def verdict(kind: str, lines: Sequence[str], question: str = "") -> Markup:
    """What is said of an answer. kind: right, wrong or told. question: what was asked, "" where it stands elsewhere."""
    asked = [tag("p", tag("b", question))] if question else []
    return tag("div", join([*asked, *(tag("p", line) for line in lines)]), class_=f"verdict {kind}", role="status")
