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
SPACED = {"zh"}  # languages in which the value decides whether a placeholder has a space beside it
UNITS = {"en": ((1e9, "billion"), (1e6, "million")), "zh": ((1e8, "亿"), (1e4, "万"))}  # the units of large counts
HAN = re.compile("[\u3400-\u9fff]")
FULL_STOP = re.compile("[。！？：；](</[a-z]+>)*$")  # full-width, so no space follows; a tag may close after it

_language: ContextVar[str | None] = ContextVar("language", default=None)
_ask: Callable[[], str | None] | None = None  # returns the language of the page's user; see set_language_source


class Message(str):
    """A sentence that is translated where it is shown; as text it is English. It can be pickled.

    translated: returns it in the user's language.
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
    """Return the sentence unchanged; marks it for the catalogues, to be translated where it is shown."""
    return sentence


def language() -> str:
    """Return the user's language, of LANGUAGES: set by `spoken` or `set_language`, else the page's, else English."""
    return _language.get() or (_ask() if _ask else None) or ENGLISH


def set_language_source(ask: Callable[[], str | None]) -> None:
    """Register, once per process, ask(): the language of the user whose page is being run, None outside of a page."""
    global _ask
    _ask = ask


def set_language(name: str) -> None:
    """Set this thread's language from now on, so that a page asks for it once and not for each of its sentences."""
    _language.set(name)


@contextmanager
def spoken(name: str) -> Iterator[None]:
    """Translate into the language `name` within the context: for work done for a user outside of a page's run."""
    before = _language.set(name)
    try:
        yield
    finally:
        _language.reset(before)


def translated(value: Any) -> Any:
    """Return a Message, or that of an error, in the user's language; anything else unchanged."""
    value = str(value) if isinstance(value, Exception) else value
    return value.translated() if isinstance(value, Message) else value


def say(sentence: str, /, **values: Any) -> str:
    """Return the sentence in the user's language, its {named} placeholders filled; English if it has no translation.

    sentence: a literal, or one marked by N_, because the catalogue is made from the source; or a Message, without
    values. Typed text goes into a placeholder, never into the sentence. values: Messages and errors are translated too.
    """
    if isinstance(sentence, Message):
        return sentence.translated()
    template = _catalogue(language()).gettext(sentence) if sentence else ""
    return _filled(template, values)


def say_count(one: str, many: str, count: int, /, **values: Any) -> str:
    """Return a sentence with a count: `one` for 1, else `many`, by the language's rule. {count} is filled by
    default."""
    template = _catalogue(language()).ngettext(one, many, count)
    return _filled(template, {"count": f"{count:,}"} | values)


def large(count: float) -> str:
    """Return a count to three digits, in the units of the language: "3.51 million", "351 万"; "19,700", "1.97 万"."""
    count = float(f"{count:.3g}")
    unit_found = next((unit for unit in UNITS[language()] if count >= unit[0]), None)
    return f"{count / unit_found[0]:,.9g} {unit_found[1]}" if unit_found else f"{count:,.0f}"


def say_all(items: Sequence[str], /, *, last: str = "and") -> str:
    """Return several things as one phrase: "a, b and c", or with last="or"; "a、b和c"."""
    if len(items) < 2:
        return listed(items)
    ends = {"head": listed(items[:-1]), "tail": items[-1]}
    return say("{head} or {tail}", **ends) if last == "or" else say("{head} and {tail}", **ends)


def listed(items: Iterable[str], between: str = N_(", ")) -> str:
    """Join several things with the language's own comma, or semicolon, between them."""
    return say(between).join(map(translated, items))


def together(sentences: Iterable[str]) -> str:
    """Join sentences to one text: a space between two, and none after a Chinese full stop."""
    *some, last = [*map(translated, sentences)] or [""]
    return "".join([*(sentence if FULL_STOP.search(sentence) else f"{sentence} " for sentence in some), last])


Arguments = ParamSpec("Arguments")


def _message(make: Callable[Arguments, str]) -> Callable[Arguments, Message]:
    def message(*arguments: Arguments.args, **values: Arguments.kwargs) -> Message:
        texts: Any = {name: str(value) if isinstance(value, Exception) else value for name, value in values.items()}
        return Message(partial(make, *arguments, **texts))

    return message


# For code that serves users of all languages: each returns a Message, so its arguments must be picklable
msg, msg_count, msg_all, msg_list = _message(say), _message(say_count), _message(say_all), _message(listed)
msg_together = _message(together)


@dataclass(frozen=True)
class _BelowZero:
    """A negative number, numpy's too, written with a true minus if its placeholder has a format: "−1.75". Without one
    it is written as in Python, which is how a rejected argument was typed."""

    number: Any

    def __format__(self, form: str) -> str:
        text = format(self.number, form)
        return text.replace("-", "−", 1) if form else text

    def __repr__(self) -> str:
        return repr(self.number)


def _filled(sentence: str, values: dict[str, Any]) -> str:
    if not values:
        return sentence  # its braces are text
    values = {
        name: _BelowZero(value) if isinstance(value, Real) and value < 0 else translated(value)
        for name, value in values.items()
    }
    if language() not in SPACED:
        return sentence.format(**values)
    text = ""
    for part, is_placeholder in _parts(sentence):
        text = _join(text, part.format(**values) if is_placeholder else part)
    return text


@lru_cache(4096)
def _parts(sentence: str) -> tuple[tuple[str, bool], ...]:
    """Split a sentence into its words and its placeholders "{…}", in their order; True = a placeholder."""
    parts = []
    for text, name, form, change in Formatter().parse(sentence):
        parts.append((text, False))
        if name is not None:
            parts.append((f"{{{name}{f'!{change}' if change else ''}{f':{form}' if form else ''}}}", True))
    return tuple(parts)


def _join(left: str, right: str) -> str:
    """Join two parts of a Chinese text: a space between a Chinese character and a letter or digit, none between two."""
    before, after = left.rstrip(" "), right.lstrip(" ")
    if not before or not after:
        return left + right
    kinds = {bool(HAN.match(character)) if character.isalnum() else None for character in (before[-1], after[0])}
    if kinds == {True}:
        return before + after
    return f"{before} {after}" if kinds == {True, False} else left + right


@cache
def _catalogue(name: str) -> gettext.NullTranslations:
    """Return a language's translations, read from the text catalogue, so that no compiled file must be kept current."""
    if name == ENGLISH:
        return gettext.NullTranslations()
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    with (FOLDER / name / "LC_MESSAGES" / f"{DOMAIN}.po").open("rb") as file:
        catalogue = read_po(file, locale=name, domain=DOMAIN)
    binary = BytesIO()
    write_mo(binary, catalogue)
    binary.seek(0)
    return gettext.GNUTranslations(binary)


def toml_sentences(
    file: BinaryIO, keywords: object, tags: object, options: dict[str, str]
) -> Iterator[tuple[int, None, str, list[str]]]:
    """Yield, for babel (babel.cfg), the texts in the tables of a TOML file; with the option `fields`, those of these
    names."""
    fields = options.get("fields", "").split()
    for table in tomllib.load(file).values():
        for name, text in table.items():
            if not fields or name in fields:
                yield 1, None, text, []
