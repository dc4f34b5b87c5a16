"""In which language a reader is spoken to: sentences are written in English, catalogues (locale/) have the others.

A sentence is whole, with named places: no language is glued together from words of another. `say` gives it in the
reader's language as it is being shown; what is a constant, or is kept for everybody, is marked by N_ and said later.
"""

import gettext
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from string import Formatter
from typing import Any

LANGUAGES = {"en": "English", "zh": "中文"}  # each by its own name; the first is the one that sentences are written in
ENGLISH = next(iter(LANGUAGES))
FOLDER = Path(__file__).parent / "locale"
DOMAIN = "unmask"
SPACED = {"zh"}  # where what fills a place decides whether a space stands beside it
UNITS = {"en": ((1e9, "billion"), (1e6, "million")), "zh": ((1e8, "亿"), (1e4, "万"))}  # of large counts
HAN = re.compile("[\u3400-\u9fff]")
FULL_STOP = re.compile("[。！？：；](</[a-z]+>)*$")  # as wide as a letter, half of it room; a tag may close after it

_language: ContextVar[str | None] = ContextVar("language", default=None)
_remember: ContextVar[bool] = ContextVar("remember", default=False)
_ask: Callable[[], str | None] | None = None  # of whoever knows the reader: the page


class Said(str):
    """Words that know how they were made: `again` says them in another language."""

    made: tuple[Callable[..., str], tuple[Any, ...], dict[str, Any]]

    def lower(self) -> str:
        return _said(str.lower, super().lower(), self)


def N_(sentence: str) -> str:
    """The sentence as it is, marked for the catalogues: to be said when it is shown."""
    return sentence


def language() -> str:
    """The reader's language, of LANGUAGES: the one set by `spoken` here, else what the page knows, else English."""
    return _language.get() or (_ask() if _ask else None) or ENGLISH


def known_by(ask: Callable[[], str | None]) -> None:
    """Call once in a process: ask() is the language of the reader whose page is being made, None outside of a page."""
    global _ask
    _ask = ask


def speak(name: str) -> None:
    """From here on, in this thread: what is asked hundreds of times as a page is made is asked once."""
    _language.set(name)


@contextmanager
def spoken(name: str) -> Iterator[None]:
    """Everything said inside is in the language `name`: for what is done for a reader out of sight of his page."""
    before = _language.set(name)
    try:
        yield
    finally:
        _language.reset(before)


@contextmanager
def remembered() -> Iterator[None]:
    """Everything said inside can be said `again`: for what is found once and read in several languages."""
    before = _remember.set(True)
    try:
        yield
    finally:
        _remember.reset(before)


def again(words: Any) -> Any:
    """What was said inside `remembered`, in the language that is spoken now; anything else as it is."""
    if isinstance(words, Said):
        make, arguments, values = words.made
        return make(*map(again, arguments), **{name: again(value) for name, value in values.items()})
    return [again(one) for one in words] if isinstance(words, (list, tuple)) else words


def say(sentence: str, /, **values: Any) -> str:
    """The sentence in the reader's language, its {named} places filled. English where it has no translation.

    sentence: a literal, or one marked by N_: the catalogue is made from the source. What was typed by anybody goes into
    a place, never into the sentence.
    """
    found = _catalogue(language()).gettext(sentence) if sentence else ""
    return _said(say, _filled(found, values) if values else found, sentence, **values)


def say_count(one: str, many: str, count: int, /, **values: Any) -> str:
    """As say, of a number: `one` for 1, `many` else, by the language's own rule. {count} is there unless given."""
    found = _catalogue(language()).ngettext(one, many, count)
    return _said(say_count, _filled(found, {"count": f"{count:,}"} | values), one, many, count, **values)


def large(count: float) -> str:
    """A count of many thousands, to three digits, in the units of the language: "3.51 million", "351 万"."""
    units = UNITS[language()]
    size, unit = next((one for one in units if count >= one[0]), units[-1])
    number = count / size
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"


def say_all(items: Sequence[str], /, *, last: str = "and") -> str:
    """Several things as one phrase: "a, b and c", or with last="or"; "a、b和c"."""
    parts = [*items]
    if len(parts) < 2:
        return parts[0] if parts else ""
    ends = {"head": listed(parts[:-1]), "tail": parts[-1]}
    return say("{head} or {tail}", **ends) if last == "or" else say("{head} and {tail}", **ends)


def listed(items: Iterable[str], between: str = N_(", ")) -> str:
    """Several things beside each other, with the reader's own comma, or semicolon, between them."""
    parts = [*items]
    return _said(listed, say(between).join(parts), parts, between)


def together(sentences: Iterable[str]) -> str:
    """Sentences in a row, as one text: a space between two, and none after a Chinese full stop."""
    all_of_them = [*sentences] or [""]
    *some, last = all_of_them
    text = "".join([*(one if FULL_STOP.search(one) else f"{one} " for one in some), last])
    return _said(together, text, all_of_them)


def _said(make: Callable[..., str], text: str, /, *arguments: Any, **values: Any) -> str:
    """The text that make(*arguments, **values) gives, which knows that where it is to be remembered."""
    if not _remember.get():
        return text
    found = Said(text)
    found.made = make, arguments, values
    return found


def _filled(sentence: str, values: dict[str, Any]) -> str:
    if language() not in SPACED:
        return sentence.format(**values)
    text = ""
    for part, is_place in _parts(sentence):
        text = _beside(text, part.format(**values) if is_place else part)
    return text


@lru_cache(4096)
def _parts(sentence: str) -> tuple[tuple[str, bool], ...]:
    """A sentence's words and its places "{…}", in their order; True = a place."""
    found = []
    for words, name, form, change in Formatter().parse(sentence):
        found.append((words, False))
        if name is not None:
            found.append((f"{{{name}{f'!{change}' if change else ''}{f':{form}' if form else ''}}}", True))
    return tuple(found)


def _beside(left: str, right: str) -> str:
    """Two parts of a Chinese text: a space between a Chinese character and a letter or digit, none between two."""
    before, after = left.rstrip(" "), right.lstrip(" ")
    if not before or not after:
        return left + right
    kinds = {bool(HAN.match(one)) if one.isalnum() else None for one in (before[-1], after[0])}
    if kinds == {True}:
        return before + after
    return f"{before} {after}" if kinds == {True, False} else left + right


@cache
def _catalogue(name: str) -> gettext.NullTranslations:
    """A language's sentences; read from text, so that there is no second file to keep in step."""
    if name == ENGLISH:
        return gettext.NullTranslations()
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    with (FOLDER / name / "LC_MESSAGES" / f"{DOMAIN}.po").open("rb") as file:
        found = read_po(file, locale=name, domain=DOMAIN)
    binary = BytesIO()
    write_mo(binary, found)
    binary.seek(0)
    return gettext.GNUTranslations(binary)
