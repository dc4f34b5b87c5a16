"""Files that are made when they are asked for, which is out of sight of the page."""

from collections.abc import Callable
from typing import TypeVar

from i18n import language, spoken

Made = TypeVar("Made")


def later(make: Callable[[], Made]) -> Callable[[], Made]:
    """make, to be called whenever: what it says is in the language of the reader whose page this is."""
    reader = language()

    def made() -> Made:
        with spoken(reader):
            return make()

    return made
