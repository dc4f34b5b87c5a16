"""Dates as people write them in English, the days they mean, and a reader of our own for the same rules.

The rules, where people disagree: a numeric date is day, month, year (3/4/2021 is the 3rd of April), unless its year has
four digits and comes first; a year of two digits is one of 1950 to 2049; the name of a weekday says nothing, even a
wrong one. Days are those of the Gregorian calendar from 1900 to 2099.
"""

import random
import re
from datetime import date

FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
DAYS = LAST_DAY.toordinal() - FIRST_DAY.toordinal() + 1
HELD_OUT_DAYS = 4_000  # that never occur in training
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
FIRST_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth",
    "nineteenth",
)  # fmt: skip
ORDINALS = (
    *FIRST_ORDINALS, "twentieth", *(f"twenty-{word}" for word in FIRST_ORDINALS[:9]), "thirtieth", "thirty-first",
)  # fmt: skip
TEMPLATES = (  # day D, month M, year Y; {o} the day as an ordinal, {m} the month by its name
    "{d} {m} {y}", "{d} {m}, {y}", "{d} of {m} {y}", "{o} {m} {y}", "{o} {m}, {y}", "{o} of {m} {y}", "{o} of {m}, {y}",
    "the {o} of {m} {y}", "the {o} of {m}, {y}", "the {o} {m} {y}", "the {o} day of {m} {y}", "the {o} day of {m}, {y}",
    "{m} {d} {y}", "{m} {d}, {y}", "{m} {o} {y}", "{m} {o}, {y}", "{m} the {o}, {y}", "{m} the {o} {y}",
    "{d}-{m}-{y}", "{d}/{m}/{y}", "{d}. {m} {y}", "{d}.{m}.{y}", "{m}-{d}-{y}",
    "{Y} {m} {d}", "{Y}, {m} {d}", "{Y}-{m}-{d}", "{Y} {m} the {o}", "{m} {Y}, the {o}", "the {o}, {m} {y}",
    "{o} of {m} in the year {Y}", "the {d} of {m} {y}", "the {o} of {m} of {Y}", "{Y} {m} {o}", "{Y}, the {o} of {m}",
    "{m}/{d}/{y}", "{m}.{d}.{y}",
)  # fmt: skip
NUMERIC = (
    "{d}/{n}/{y}", "{d}.{n}.{y}", "{d}-{n}-{y}", "{d}. {n}. {y}", "{d} {n} {Y}", "{d} / {n} / {y}",
    "{Y}-{n}-{d}", "{Y}/{n}/{d}", "{Y}.{n}.{d}", "{Y} {n} {d}",
)  # fmt: skip
CHARACTERS = "".join(map(chr, range(32, 127))) + "’"  # what is shown as typed; not all of it occurs in dates
SAID = {"the", "of", "on", "day", "in", "year", "date", "st", "nd", "rd", "th"}  # words that say nothing


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


def write(day: date, draw: random.Random) -> str:
    """The day in a format drawn at random."""
    numeric = draw.random() < 0.25
    template = draw.choice(NUMERIC if numeric else TEMPLATES)
    text = template.format(
        d=_digits(day.day, draw),
        o=_ordinal(day.day, draw),
        n=_digits(day.month, draw),
        m=_month(day.month, draw),
        Y=day.year,
        y=_year(day.year, draw, apostrophe=not numeric),
    )
    text = _with_weekday(text, day, draw)
    if draw.random() < 0.1:
        text = draw.choice(("on ", "date: ", "Date: ")) + text
    return _in_another_case(_spaced(text, draw), draw)


def examples(days: list[date], count: int, draw: random.Random) -> list[tuple[str, str]]:
    """(as somebody wrote it, ISO 8601) of days drawn from these."""
    chosen = draw.choices(days, k=count)
    return [(write(day, draw), day.isoformat()) for day in chosen]


def read(text: str) -> date | None:
    """The day that a text means by the rules above; None where it is no date by them."""
    words = re.findall(r"[a-z]+|\d+", re.sub(r"(?<=\d)(st|nd|rd|th)\b", "", _joined_ordinals(text.lower())))
    if re.search(r"[^a-z0-9\s,./:'’-]", text.lower()):
        return None
    months = [place for place, word in enumerate(words) if word in _MONTH_OF]
    months = months if len(months) < 2 else []
    numbers = [word for word in words if word.isdigit()]
    known = all(word.isdigit() or word in _MONTH_OF or word in SAID or word in _WEEKDAY_WORDS for word in words)
    if not known or len(numbers) != 3 - len(months):
        return None
    year = next((number for number in numbers if len(number) > 2), numbers[-1])
    place = numbers.index(year) if len(year) > 2 else len(numbers) - 1
    others = numbers[:place] + numbers[place + 1 :]
    if not months:
        day, month = reversed(others) if place == 0 else others
        if place == 1:
            return None
        return _day(year, int(month) if len(month) < 3 else 0, day)
    return _day(year, _MONTH_OF[words[months[0]]], others[0])


def read_iso(text: str) -> date | None:
    """The day of a text that is a day of the calendar as YYYY-MM-DD, in these digits; None for all other texts."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _digits(number: int, draw: random.Random) -> str:
    return f"{number:02d}" if draw.random() < 0.4 else str(number)


def _ordinal(day: int, draw: random.Random) -> str:
    if draw.random() < 0.2:
        return ORDINALS[day - 1] if draw.random() < 0.7 else ORDINALS[day - 1].replace("-", " ")
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def _month(month: int, draw: random.Random) -> str:
    name = MONTHS[month - 1]
    if draw.random() < 0.05:
        name = name.upper()
    if draw.random() < 0.55 or len(name) == 3:
        return name
    short = name[:4] if month == 9 and draw.random() < 0.5 else name[:3]
    return short + ("." if draw.random() < 0.3 else "")


def _year(year: int, draw: random.Random, *, apostrophe: bool) -> str:
    if 1950 <= year < 2050 and draw.random() < 0.25:
        mark = draw.choice("'''’") if apostrophe and draw.random() < 0.4 else ""
        return f"{mark}{year % 100:02d}"
    return str(year)


def _with_weekday(text: str, day: date, draw: random.Random) -> str:
    chance = draw.random()
    if chance > 0.25:
        return text
    number = day.weekday() if draw.random() < 0.8 else draw.randrange(7)  # a wrong one must not mislead
    name = draw.choice((WEEKDAYS[number], SHORT_WEEKDAYS[number], SHORT_WEEKDAYS[number] + "."))
    if chance > 0.2:
        return f"{text}, {name}"
    return name + draw.choice((" ", ", ")) + text


def _spaced(text: str, draw: random.Random) -> str:
    """Sometimes with spaces too many, inside or around, or with a full stop."""
    if draw.random() < 0.03:
        text += "."
    chance = draw.random()
    if chance < 0.03:
        text = text.replace(" ", "  ")
    elif chance < 0.13:
        place = draw.choice([found.start() for found in re.finditer(" ", text)] or [0])
        text = text[:place] + " " * draw.choice((1, 1, 2, 3)) + text[place:]
    return " " * (draw.random() < 0.04) + text + " " * (draw.random() < 0.04)


def _in_another_case(text: str, draw: random.Random) -> str:
    chance = draw.random()
    if chance < 0.25:
        return text.lower()
    if chance < 0.35:
        return text.upper()
    return text[:1].upper() + text[1:] if chance < 0.55 else text


_MONTH_OF = {name.lower(): number for number, name in enumerate(MONTHS, 1)}
_MONTH_OF |= {name[:3]: number for name, number in _MONTH_OF.items()} | {"sept": 9}
_WEEKDAY_WORDS = {name.lower() for name in (*WEEKDAYS, *SHORT_WEEKDAYS)}
_ORDINAL_WORDS = sorted(((word, number) for number, word in enumerate(ORDINALS, 1)), key=lambda one: -len(one[0]))


def _joined_ordinals(text: str) -> str:
    """The words first, second … thirty-first as digits."""
    for word, number in _ORDINAL_WORDS:
        text = re.sub(rf"\b{word.replace('-', '[ -]+')}\b", str(number), text)
    return text


def _day(year: str, month: int, day: str) -> date | None:
    if len(year) not in (2, 4) or len(day) > 2:
        return None
    whole = int(year) if len(year) == 4 else int(year) + (1900 if int(year) >= 50 else 2000)
    try:
        found = date(whole, month, int(day))
    except ValueError:
        return None
    return found if FIRST_DAY <= found <= LAST_DAY else None
