"""Sentences in a language: names and values in, text or HTML out."""

from string import Formatter
from typing import Any

from markupsafe import Markup, escape

from model.lessons.said import Said
from model.lessons.words import words
from viz.numbers import chance, number, one_in, percent

FORMATS = {
    "percent": percent,  # of a share
    "chance": chance,  # of what a softmax gave
    "nats": lambda value: f"{value:.2f}" if value >= 0.005 else "< 0.01",
    "odds": one_in,
    "weight": number,
}


def text(language: str, name: str, /, **values: Any) -> str:
    """A sentence by its name, as plain text."""
    return plain(language, Said(name, values))


def plain(language: str, said: Said) -> str:
    """The sentence as text. What is typed by anybody stands in it as it is: to be escaped where it is shown."""
    return _InPlaces(language).vformat(_sentence(language, said), (), said.values)


def html(language: str, said: Said) -> Markup:
    """The sentence with what stands in its places escaped."""
    return escape(plain(language, said))


def _sentence(language: str, said: Said) -> str:
    """The sentence of that name. A model of somebody else's has no name here but its own."""
    sentences = words(language).sentences
    if said.name not in sentences and said.name.startswith("model_"):
        return said.name.removeprefix("model_").replace("{", "{{").replace("}", "}}")
    return sentences[said.name]


class _InPlaces(Formatter):
    """Puts values into named places; a value that is said itself is said in the same language."""

    def __init__(self, language: str) -> None:
        self._language = language

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Said):
            return plain(self._language, value)
        if isinstance(value, tuple):
            return " + ".join(plain(self._language, one) for one in value)
        return FORMATS[format_spec](value) if format_spec else str(value)
