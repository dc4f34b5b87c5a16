"""A rule-based parser of English dates, which decides what a text means on the Cross-attention page.

Rules for ambiguous dates: in numbers alone, 3/4/2021, the day comes first; if that is no day of the calendar, the month
does (12/25/2020). If both are possible, the text has two readings, and the one with the day first is taken. A
four-digit year that comes first is followed by the month. A two-digit year is one of 1950 to 2049. The name of a
weekday is ignored, even a wrong one. A month's name may have one wrong letter. Days are those of the calendar from 1900
to 2099.
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

Why = Literal[
    "several", "years", "calendar", "month", "letters", "nothing"
]  # reasons that `no_date_reason` distinguishes
Readings = tuple[tuple[int, int, int], ...]  # of one date: (year, month, day), once or in two orders
MAX_LETTERS = 3  # most letters that are listed

_SKIPPED = "|".join(
    (*(name.lower() for name in (*WEEKDAYS, *SHORT_WEEKDAYS)), "the", "of", "day", "in", "year", "ad", "utc", "gmt")
)
_BETWEEN = rf"(?:[\s,./_'’;()*-]|(?<![a-z])(?:{_SKIPPED})(?![a-z]))*"
_DAY = r"(?<![0-9])(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?(?![0-9])"
_ORDINAL = r"(?<![0-9])(?P<day>[0-9]{1,2})(?:st|nd|rd|th)"
_MONTH = r"(?P<month>(?<![a-z])[a-z]{3,11}|(?<=[0-9](?:st|nd|rd|th))[a-z]{3,11})(?![a-z])"
_YEAR = r"(?<![0-9])(?P<year>[0-9]{4}|[0-9]{2})(?![0-9]|st|nd|rd|th)"
_FULL_YEAR = r"(?<![0-9])(?P<year>[0-9]{4})(?![0-9])"
_NAMED = [  # a named month, in all orders in use
    re.compile(_BETWEEN.join(parts))
    for parts in ((_DAY, _MONTH, _YEAR), (_MONTH, _DAY, _YEAR), (_FULL_YEAR, _MONTH, _DAY), (_FULL_YEAR, _DAY, _MONTH))
]
_DAY_LAST = re.compile(_BETWEEN.join((_MONTH, _FULL_YEAR, _ORDINAL)))  # October 2021, the 3rd
_ALONE = r"(?<![0-9])(?<![0-9][./-])"  # no number before it …
_ENDED = r"(?![0-9])(?![./-][0-9])"  # … or after it
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
_UNKNOWN_MONTHS = [  # a word in the position of the month's name
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
    """Return a pattern of the words, the longest first, with hyphens or spaces inside."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile(f"(?<![a-z])(?:{'|'.join(longest_first).replace(' ', '[ -]+')})(?![a-z])")


_DAY_WORDS, _YEAR_WORDS = _any_of(_DAYS), _any_of(_IN_DIGITS.keys() - set(_DAYS))


def read(text: str) -> tuple[date, ...]:
    """Return the days that a text means by the rules above: none, one, or two, the preferred one first.

    A text that names several days has none, since it is ambiguous."""
    plain = _plain(text)
    if len(split_joined_days(plain)) > 1:
        return ()
    for written in _written(plain):  # in "week 3, Jan 20, 2017", 3 Jan 20 is the less likely reading
        dates = (dict.fromkeys(day for one in readings if (day := possible(*one))) for readings in written)
        readings = {tuple(days) for days in dates if days}  # days within the model's range of years
        if len(readings) == 1:
            return readings.pop()
        if readings:  # "3 May 2021 (3.5.2021)" names one day twice
            taken = {days[0] for days in readings}
            return tuple(taken) if len(taken) == 1 else ()
    return ()


def no_date_reason(text: str) -> tuple[Why, str]:
    """Return why `read` finds no day in a text, and the word or letters in question ("" for other reasons)."""
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
    """Return the text in lower case, without times of day, with days and years in digits."""
    plain = text.lower()
    for words in (_YEAR_WORDS, _DAY_WORDS):
        plain = words.sub(lambda found: _IN_DIGITS[" ".join(re.split("[ -]+", found[0]))], plain)
    return _TIME.sub(" ", plain)


def _written(plain: str) -> Iterator[set[Readings]]:
    """Yield the readings of each date in the text, on the calendar or not: first those with four-digit years."""
    last = [found[0] for found in overlapping(_DAY_LAST, plain) if month_of(found["month"])]
    if last:  # otherwise the number before the month could be taken for its day
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
            if len(found["year"]) == length:  # day first, then month first
                first, second, year = int(found["first"]), int(found["second"]), _whole(found["year"])
                readings.add(((year, second, first), (year, first, second)))
        yield readings | {
            ((_whole(found["year"]), month, int(found["day"])),)
            for found, month in named
            if len(found["year"]) == length
        }


def _matches(pattern: re.Pattern[str], text: str) -> list[dict[str, str]]:
    """Return the groups of matches with the same sign twice, or with spaces and a four-digit year."""
    found = [match.groupdict() for match in overlapping(pattern, text)]
    signs = [(one.get("one", "").strip(), one.get("other", "").strip()) for one in found]
    return [
        one
        for one, (sign, other) in zip(found, signs, strict=True)
        if sign == other and (sign or "one" not in one or len(one["year"]) == 4)
    ]


def _whole(year: str) -> int:
    return int(year) if len(year) == 4 else int(year) + (1900 if int(year) >= 50 else 2000)
