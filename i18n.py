"""Sentences in the user's language: written in English, translated by catalogues (locale/).

A sentence is whole, with named placeholders, never glued together from translated words. A page calls `say`. Code
that serves users of all languages (model/, mask_check/, serving/) makes a `Message`, by `msg` and its siblings, in what
it returns and raises; the page translates it, by `say(message)` or as a value of another sentence.
"""

import gettext
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from io import BytesIO
from numbers import Real
from pathlib import Path
from string import Formatter
from typing import Any, BinaryIO, ParamSpec, Self

LANGUAGES = {"en": "English", "zh": "中文"}  # each by its own name; the first is the one that sentences are written in
ENGLISH = next(iter(LANGUAGES))
FOLDER = Path(__file__).parent / "locale"
DOMAIN = "unmask"
SPACED = {"zh"}  # languages in which a value decides whether a space stands beside it
UNITS = {"en": ((1e9, "billion"), (1e6, "million")), "zh": ((1e8, "亿"), (1e4, "万"))}  # the units of large counts
HAN = re.compile("[\u3400-\u9fff]")
FULL_STOP = re.compile("[。！？：；](</[a-z]+>)*$")  # as wide as a letter, half of it room; a tag may close after it

_language: ContextVar[str | None] = ContextVar("language", default=None)
_ask: Callable[[], str | None] | None = None  # returns the language of the page's reader; see set_language_source


class Message(str):
    """A sentence that is translated where it is shown; as text it is English. It can be pickled.

    translated: gives it in the user's language.
    """

    translated: partial[str]

    def __new__(cls, translated: partial[str]) -> Self:
        with spoken(ENGLISH):
            message = super().__new__(cls, translated())
        message.translated = translated
        return message

    def __str__(self) -> str:
        return self  # so that str(error) is a Message too

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (self.translated,)


def N_(sentence: str) -> str:
    """The sentence as it is, marked for the catalogues: to be said when it is shown."""
    return sentence


def language() -> str:
    """The reader's language, of LANGUAGES: the one set by `spoken` here, else what the page knows, else English."""
    return _language.get() or (_ask() if _ask else None) or ENGLISH


def set_language_source(ask: Callable[[], str | None]) -> None:
    """Call once in a process: ask() is the language of the reader whose page is being made, None outside of a page."""
    global _ask
    _ask = ask


def set_language(name: str) -> None:
    """Set this thread's language from now on, so that a page asks for it once and not for each of its sentences."""
    _language.set(name)


@contextmanager
def spoken(name: str) -> Iterator[None]:
    """Everything said inside is in the language `name`: for what is done for a reader out of sight of his page."""
    before = _language.set(name)
    try:
        yield
    finally:
        _language.reset(before)


def translated(value: Any) -> Any:
    """A Message, or that of an error, in the user's language; anything else as it is."""
    value = str(value) if isinstance(value, Exception) else value
    return value.translated() if isinstance(value, Message) else value


def say(sentence: str, /, **values: Any) -> str:
    """The sentence in the user's language, its {named} placeholders filled. English where it has no translation.

    sentence: a literal, or one marked by N_: the catalogue is made from the source. What was typed by anybody goes into
    a place, never into the sentence. Or a Message, without values. values: Messages and errors are translated too.
    """
    if isinstance(sentence, Message):
        return sentence.translated()
    found = _catalogue(language()).gettext(sentence) if sentence else ""
    return _filled(found, values)


def say_count(one: str, many: str, count: int, /, **values: Any) -> str:
    """As `say`, for a count: `one` for 1, else `many`, by the language's rule. {count} is filled in unless given."""
    found = _catalogue(language()).ngettext(one, many, count)
    return _filled(found, {"count": f"{count:,}"} | values)


def large(count: float) -> str:
    """A count to three digits, in the units of the language: "3.51 million", "351 万"; "19,700", "1.97 万"."""
    count = float(f"{count:.3g}")
    found = next((one for one in UNITS[language()] if count >= one[0]), None)
    return f"{count / found[0]:,.9g} {found[1]}" if found else f"{count:,.0f}"


def say_all(items: Sequence[str], /, *, last: str = "and") -> str:
    """Several things as one phrase: "a, b and c", or with last="or"; "a、b和c"."""
    if len(items) < 2:
        return listed(items)
    ends = {"head": listed(items[:-1]), "tail": items[-1]}
    return say("{head} or {tail}", **ends) if last == "or" else say("{head} and {tail}", **ends)


def listed(items: Iterable[str], between: str = N_(", ")) -> str:
    """Several things beside each other, with the language's own comma, or semicolon, between them."""
    return say(between).join(map(translated, items))


def together(sentences: Iterable[str]) -> str:
    """Sentences in a row, as one text: a space between two, and none after a Chinese full stop."""
    *some, last = [*map(translated, sentences)] or [""]
    return "".join([*(one if FULL_STOP.search(one) else f"{one} " for one in some), last])


Arguments = ParamSpec("Arguments")


def _message(make: Callable[Arguments, str]) -> Callable[Arguments, Message]:
    def message(*arguments: Arguments.args, **values: Arguments.kwargs) -> Message:
        texts: Any = {name: str(value) if isinstance(value, Exception) else value for name, value in values.items()}
        return Message(partial(make, *arguments, **texts))

    return message


# The same for code that serves users of all languages: each gives a Message. Its arguments can be pickled
msg, msg_count, msg_all, msg_list = _message(say), _message(say_count), _message(say_all), _message(listed)
msg_together = _message(together)


@dataclass(frozen=True)
class _BelowZero:
    """A number, numpy's too, that a sentence writes with a true minus where it gives a format: "−1.75". Without one it
    stands as Python writes it, which is how a refused argument was typed."""

    number: Any

    def __format__(self, form: str) -> str:
        text = format(self.number, form)
        return text.replace("-", "−", 1) if form else text

    def __repr__(self) -> str:
        return repr(self.number)


def _filled(sentence: str, values: dict[str, Any]) -> str:
    if not values:
        return sentence  # in which braces are text
    values = {
        name: _BelowZero(value) if isinstance(value, Real) and value < 0 else translated(value)
        for name, value in values.items()
    }
    if language() not in SPACED:
        return sentence.format(**values)
    text = ""
    for part, is_place in _parts(sentence):
        text = _beside(text, part.format(**values) if is_place else part)
    return text


@lru_cache(4096)
def _parts(sentence: str) -> tuple[tuple[str, bool], ...]:
    """A sentence's words and its placeholders "{…}", in their order; True = a placeholder."""
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
    """A language's translations, read from the text catalogue, so that there is no compiled file to keep up to date."""
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


def toml_sentences(
    file: BinaryIO, keywords: object, tags: object, options: dict[str, str]
) -> Iterator[tuple[int, None, str, list[str]]]:
    """For babel (babel.cfg): the texts in the tables of a TOML file; with the option `fields`, those of these names."""
    fields = options.get("fields", "").split()
    for table in tomllib.load(file).values():
        for name, text in table.items():
            if not fields or name in fields:
                yield 1, None, text, []
