"""What a run says, in the reader's language: names and values in, text out."""

from string import Formatter
from typing import Any

from i18n import say
from lessons.statement import Statement
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
