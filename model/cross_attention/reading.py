"""A reader of our own for dates in English: the rules by which the page says what a text means.

The rules, where people disagree. In numbers alone, 3/4/2021, the day comes first; where that is no day of the
calendar, the month (12/25/2020). Where both could be, the text has two readings, and the day first is taken. A year of
four digits that comes first is followed by the month. A year of two digits is one of 1950 to 2049. The name of a
weekday says nothing, even a wrong one. A month's name may have one letter wrong. Days are those of the calendar from
1900 to 2099.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Literal

from model.cross_attention.several_days import month_of, overlapping, split_joined_days
from model.cross_attention.written_dates import (
    FIRST_DAY,
    LAST_DAY,
    ORDINALS,
    SHORT_WEEKDAYS,
    WEEKDAYS,
    on_calendar,
    possible,
    year_in_words,
)

Why = Literal["several", "years", "calendar", "month", "letters", "nothing"]  # what `no_date_reason` tells apart
Readings = tuple[tuple[int, int, int], ...]  # of one date: year, month and day, once or in two orders
MAX_LETTERS = 3  # most letters that are named

_SKIPPED = "|".join(
    (*(name.lower() for name in (*WEEKDAYS, *SHORT_WEEKDAYS)), "the", "of", "day", "in", "year", "ad", "utc", "gmt")
)
_BETWEEN = rf"(?:[\s,./_'’;()*-]|(?<![a-z])(?:{_SKIPPED})(?![a-z]))*"
_DAY = r"(?<![0-9])(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?(?![0-9])"
_ORDINAL = r"(?<![0-9])(?P<day>[0-9]{1,2})(?:st|nd|rd|th)"
_MONTH = r"(?P<month>(?<![a-z])[a-z]{3,11}|(?<=[0-9](?:st|nd|rd|th))[a-z]{3,11})(?![a-z])"
_YEAR = r"(?<![0-9])(?P<year>[0-9]{4}|[0-9]{2})(?![0-9]|st|nd|rd|th)"
_FULL_YEAR = r"(?<![0-9])(?P<year>[0-9]{4})(?![0-9])"
_NAMED = [  # the month by its name, in all the orders that people use
    re.compile(_BETWEEN.join(parts))
    for parts in ((_DAY, _MONTH, _YEAR), (_MONTH, _DAY, _YEAR), (_FULL_YEAR, _MONTH, _DAY), (_FULL_YEAR, _DAY, _MONTH))
]
_DAY_LAST = re.compile(_BETWEEN.join((_MONTH, _FULL_YEAR, _ORDINAL)))  # October 2021, the 3rd
_ALONE = r"(?<![0-9])(?<![0-9][./-])"  # no number stands before it …
_ENDED = r"(?![0-9])(?![./-][0-9])"  # … nor after it
_PARTED = r"(?P<{}>\s*[./_-]\s*|\s+)"
_NUMBERS = re.compile(
    rf"{_ALONE}(?P<first>[0-9]{{1,2}}){_PARTED.format('one')}(?P<second>[0-9]{{1,2}}){_PARTED.format('other')}"
    rf"(?P<year>[0-9]{{4}}|[0-9]{{2}}){_ENDED}"
)
_YEAR_FIRST = re.compile(
    rf"{_ALONE}(?P<year>[0-9]{{4}}){_PARTED.format('one')}(?P<month>[0-9]{{1,2}}){_PARTED.format('other')}"
    rf"(?P<day>[0-9]{{1,2}}){_ENDED}"
)
_JOINED = re.compile(r"(?<![0-9])(?P<year>[0-9]{4})(?P<month>[0-9]{2})(?P<day>[0-9]{2})(?![0-9])")
_APART = r"\W+(?:(?:of|the|de)\W+)*"
_ANY_DAY = r"(?<!\d)\d{1,2}(?:st|nd|rd|th|er|º|ª)?"
_ANY_WORD = rf"(?<![^\W\d_])(?!(?:{_SKIPPED})\b)(?P<word>[^\W\d_]{{3,20}})"
_UNKNOWN_MONTHS = [  # where the month's name should be
    re.compile(_APART.join(parts), re.IGNORECASE)
    for parts in (
        (_ANY_DAY, _ANY_WORD, r"(?:\d{4}|\d{2})(?!\d)"),
        (_ANY_WORD, _ANY_DAY, r"(?:\d{4}|\d{2})(?!\d)"),
        (r"(?<!\d)\d{4}", _ANY_WORD, rf"{_ANY_DAY}(?!\d)"),
    )
]
_TIME = re.compile(
    r"(?:(?<=[0-9])t)?(?<![0-9])[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?"
    r"(?: ?[ap]\.?m\b\.?|z\b)?(?: ?(?:utc|gmt)?[+-][0-9]{2}:?[0-9]{2}(?![0-9]))?"
    r"|(?<![0-9])[0-9]{1,2} ?[ap]\.?m\b\.?|(?<=[0-9])t[0-9]{4,6}z?(?![0-9])|(?<=[0-9])_[0-9]{6}z?(?![0-9])"
)
_IN_DIGITS = {word.replace("-", " "): f"{number}th" for number, word in enumerate(ORDINALS, 1)}
_DAYS = list(_IN_DIGITS)
_IN_DIGITS |= {
    words.replace("-", " "): str(year)
    for year in range(FIRST_DAY.year, LAST_DAY.year + 1)
    for words in year_in_words(year)
}


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """The words, the longest first, with hyphens or spaces inside."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile(f"(?<![a-z])(?:{'|'.join(longest_first).replace(' ', '[ -]+')})(?![a-z])")


_DAY_WORDS, _YEAR_WORDS = _any_of(_DAYS), _any_of(_IN_DIGITS.keys() - set(_DAYS))


def read(text: str) -> tuple[date, ...]:
    """The days that a text means by the rules above: none, one, or two, the one that is taken first.

    Of a text that names several days, none: which one is meant?"""
    plain = _plain(text)
    if len(split_joined_days(plain)) > 1:
        return ()
    for written in _written(plain):  # of "week 3, Jan 20, 2017" 3 Jan 20 is the worse reading
        dates = (dict.fromkeys(day for one in readings if (day := possible(*one))) for readings in written)
        readings = {tuple(days) for days in dates if days}  # the days of the years that the model knows
        if len(readings) == 1:
            return readings.pop()
        if readings:  # "3 May 2021 (3.5.2021)" says one day twice
            taken = {days[0] for days in readings}
            return tuple(taken) if len(taken) == 1 else ()
    return ()


def no_date_reason(text: str) -> tuple[Why, str]:
    """Of a text that `read` finds no day in: why, and the word or the letters in question ("" for other reasons)."""
    every = [readings for one in split_joined_days(_plain(text)) for written in _written(one) for readings in written]
    numbers = [number for readings in every for number in readings]
    if any(possible(*one) for one in numbers):
        return "several", ""
    if any(on_calendar(*one) for one in numbers):
        return "years", ""
    if numbers:
        return "calendar", ""
    for pattern in _UNKNOWN_MONTHS:
        for found in pattern.finditer(text):
            if not month_of(found["word"].lower()):
                return "month", found["word"]
    letters = dict.fromkeys(letter for letter in text if letter.isalpha() and not letter.isascii())
    if letters and any(letter.isdigit() for letter in text):
        return "letters", ", ".join(list(letters)[:MAX_LETTERS])
    return "nothing", ""


def _plain(text: str) -> str:
    """Small letters, without times of day, days and years in digits."""
    plain = text.lower()
    for words in (_YEAR_WORDS, _DAY_WORDS):
        plain = words.sub(lambda found: _IN_DIGITS[" ".join(re.split("[ -]+", found[0]))], plain)
    return _TIME.sub(" ", plain)


def _written(plain: str) -> Iterator[set[Readings]]:
    """The readings of each date in the text, on the calendar or not: of whole years, then of those of two digits."""
    last = [found[0] for found in overlapping(_DAY_LAST, plain) if month_of(found["month"])]
    if last:  # or the number before the month might pass for its day
        plain = last[-1]
    named = [
        (found, month)
        for pattern in (_DAY_LAST, *_NAMED)
        for found in _matches(pattern, plain)
        if (month := month_of(found["month"]))
    ]
    named += [(found, int(found["month"])) for pattern in (_YEAR_FIRST, _JOINED) for found in _matches(pattern, plain)]
    numbers = _matches(_NUMBERS, plain)
    for length in (4, 2):
        readings: set[Readings] = set()
        for found in numbers:
            if len(found["year"]) == length:  # the day first, then the month first
                first, second, year = int(found["first"]), int(found["second"]), _whole(found["year"])
                readings.add(((year, second, first), (year, first, second)))
        yield readings | {
            ((_whole(found["year"]), month, int(found["day"])),)
            for found, month in named
            if len(found["year"]) == length
        }


def _matches(pattern: re.Pattern[str], text: str) -> list[dict[str, str]]:
    """Their parts, of those whose numbers are parted by the same sign twice, or by spaces where the year is whole."""
    found = [match.groupdict() for match in overlapping(pattern, text)]
    signs = [(one.get("one", "").strip(), one.get("other", "").strip()) for one in found]
    return [
        one
        for one, (sign, other) in zip(found, signs, strict=True)
        if sign == other and (sign or "one" not in one or len(one["year"]) == 4)
    ]


def _whole(year: str) -> int:
    return int(year) if len(year) == 4 else int(year) + (1900 if int(year) >= 50 else 2000)
