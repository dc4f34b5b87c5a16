"""The days that the dates model knows, their names in English, and those of them that never occur in training."""

import random
import re
from datetime import date

NO_DATE = "none"  # what is written for a text that is no date
SURE = 0.9  # an answer with less probability is said to be unsure; how many of those with more are right is on the card


def read_iso(text: str) -> date | None:
    """The day of a text that is a day of the calendar as YYYY-MM-DD, in these digits; None for all other texts."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
DAYS = LAST_DAY.toordinal() - FIRST_DAY.toordinal() + 1
HELD_OUT_DAYS = 4_000  # that never occur in training
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Tues", "Weds", "Thur", "Thurs")
FIRST_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth",
    "nineteenth",
)  # fmt: skip
ORDINALS = (
    *FIRST_ORDINALS, "twentieth", *(f"twenty-{word}" for word in FIRST_ORDINALS[:9]), "thirtieth", "thirty-first",
)  # fmt: skip
UP_TO_NINETEEN = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def day_of(number: int) -> date:
    """The day with this number, from 0 up to DAYS."""
    return date.fromordinal(FIRST_DAY.toordinal() + number)


def held_out_days() -> list[date]:
    """HELD_OUT_DAYS days, always the same; training draws from all others."""
    return [day_of(number) for number in random.Random("held out").sample(range(DAYS), HELD_OUT_DAYS)]


def training_days() -> list[date]:
    """All days that are not held out."""
    held_out = set(held_out_days())
    return [day for day in map(day_of, range(DAYS)) if day not in held_out]


def on_calendar(year: int, month: int, day: int) -> date | None:
    """The day of the calendar that this is, None where there is none."""
    try:
        return date(year, month, day)
    except ValueError:
        return None


def possible(year: int, month: int, day: int) -> date | None:
    """The same, of the days that are known."""
    found = on_calendar(year, month, day)
    return found if found and FIRST_DAY <= found <= LAST_DAY else None


def year_in_words(year: int) -> tuple[str, ...]:
    """The ways to say a year: nineteen ninety-nine; two thousand and five, two thousand five; twenty five is none."""
    century, rest = divmod(year, 100)
    if year // 1000 == 2 and rest + century % 10 * 100 < 20:
        said = "two thousand" if rest == 0 else f"two thousand and {_below_hundred(rest)}"
        return (said, said.replace(" and ", " ")) if rest else (said,)
    if rest == 0:
        return (f"{UP_TO_NINETEEN[century - 1]} hundred",)
    named = "twenty" if century == 20 else UP_TO_NINETEEN[century - 1]
    if rest < 10:
        return (f"{named} oh {_below_hundred(rest)}",)
    short = f"{named} {_below_hundred(rest)}"
    return (short, f"two thousand and {_below_hundred(rest)}") if century == 20 else (short,)


def _below_hundred(number: int) -> str:
    if number < 20:
        return UP_TO_NINETEEN[number - 1]
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] + (f"-{UP_TO_NINETEEN[ones - 1]}" if ones else "")
