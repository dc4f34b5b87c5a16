"""Dates as people write them in English, in sentences, with times and typing errors, and the days that they mean.

What a text means is ruled in reading.py.
"""

import random
import re
from datetime import date

from model.cross_attention.days import (
    FIRST_DAY,
    LAST_DAY,
    MONTHS,
    ORDINALS,
    SHORT_WEEKDAYS,
    WEEKDAYS,
    year_in_words,
)
from model.cross_attention.surroundings import time_of_day, with_surroundings

TEMPLATES = (  # day D, month M, year Y; {o} the day as an ordinal, {m} the month by its name
    "{d} {m} {y}", "{d} {m}, {y}", "{d} of {m} {y}", "{o} {m} {y}", "{o} {m}, {y}", "{o} of {m} {y}", "{o} of {m}, {y}",
    "the {o} of {m} {y}", "the {o} of {m}, {y}", "the {o} {m} {y}", "the {o} day of {m} {y}", "the {o} day of {m}, {y}",
    "{m} {d} {y}", "{m} {d}, {y}", "{m} {o} {y}", "{m} {o}, {y}", "{m} the {o}, {y}", "{m} the {o} {y}",
    "{d}-{m}-{y}", "{d}/{m}/{y}", "{d}. {m} {y}", "{d}.{m}.{y}", "{m}-{d}-{y}",
    "{Y} {m} {d}", "{Y}, {m} {d}", "{Y}-{m}-{d}", "{Y} {m} the {o}", "{m} {Y}, the {o}", "the {o}, {m} {y}",
    "{o} of {m} in the year {Y}", "the {d} of {m} {y}", "the {o} of {m} of {Y}", "{Y} {m} {o}", "{Y}, the {o} of {m}",
    "{m}/{d}/{y}", "{m}.{d}.{y}", "{d}{m}{y}", "{m}{d},{Y}", "{o}{m}{Y}", "{Y} {d} {m}", "{o}.{m}.{Y}", "{m},{d},{Y}",
)  # fmt: skip
DAY_FIRST = (
    "{d}/{n}/{y}", "{d}.{n}.{y}", "{d}-{n}-{y}", "{d}. {n}. {y}", "{d} {n} {Y}", "{d} / {n} / {y}", "{d}_{n}_{y}",
)  # fmt: skip
MONTH_FIRST = ("{n}/{d}/{y}", "{n}/{d}/{y}", "{n}-{d}-{y}", "{n}.{d}.{y}", "{n} / {d} / {y}", "{n} {d} {Y}")
YEAR_FIRST = (
    "{Y}-{n:02d}-{d:02d}", "{Y}-{n:02d}-{d:02d}", "{Y}-{n}-{d}", "{Y}/{n}/{d}", "{Y}.{n}.{d}", "{Y} {n} {d}",
    "{Y}_{n}_{d}", "{Y}{n:02d}{d:02d}",
)  # fmt: skip
SHAPES = len({*TEMPLATES, *DAY_FIRST, *MONTH_FIRST, *YEAR_FIRST})
CHARACTERS = "".join(map(chr, range(32, 127))) + "’"  # what is shown as typed; not all of it occurs in dates


def write(day: date, draw: random.Random) -> str:
    """The day in a format drawn at random. In numbers alone the month comes first only where no day could."""
    return write_numbers(day.year, day.month, day.day, day.weekday(), draw)


def write_numbers(year: int, month: int, day: int, weekday: int, draw: random.Random) -> str:
    """As write; also what is no day of the calendar: a day of up to 99, and a month of any number, then in digits."""
    named = 1 <= month <= 12 and draw.random() < 0.65
    text = _named(year, month, day, draw) if named else _numeric(year, month, day, draw)
    text = _with_time(_with_weekday(text, weekday, draw), draw)
    if draw.random() < 0.35:
        text = with_surroundings(text, draw)
    return _in_another_case(_spaced(text, draw), draw)


def examples(days: list[date], count: int, draw: random.Random) -> list[tuple[str, str]]:
    """(as somebody wrote it, ISO 8601) of days drawn from these."""
    chosen = draw.choices(days, k=count)
    return [(write(day, draw), day.isoformat()) for day in chosen]


def _named(year: int, month: int, day: int, draw: random.Random) -> str:
    template = draw.choice(TEMPLATES)
    if draw.random() < 0.3:
        template = draw.choice(("{d} {m} {y}", "{m} {d}, {y}", "{o} of {m} {y}", "{m} {o}, {y}", "the {o} of {m} {y}"))
    joined = "}{" in template  # where nothing parts them, a day in words could not be told from the month
    known = FIRST_DAY.year <= year <= LAST_DAY.year
    spoken = known and not joined and " {y}" in template and draw.random() < 0.04
    return template.format(
        d=_digits(day, draw),
        o=_ordinal(day, draw, words=not joined),
        m=_month(month, draw, full_stop=not joined),
        Y=year,
        y=draw.choice(year_in_words(year)) if spoken else _year(year, draw, apostrophe=not joined),
    )


def _numeric(year: int, month: int, day: int, draw: random.Random) -> str:
    template = draw.choice(YEAR_FIRST if draw.random() < 0.4 else DAY_FIRST)
    if template in DAY_FIRST and day > 12 and draw.random() < 0.5:
        template = draw.choice(MONTH_FIRST)
    if ":02d" in template:
        return template.format(d=day, n=month, Y=year)
    return template.format(d=_digits(day, draw), n=_digits(month, draw), Y=year, y=_year(year, draw, apostrophe=False))


def _digits(number: int, draw: random.Random) -> str:
    return f"{number:02d}" if draw.random() < 0.4 else str(number)


def _ordinal(day: int, draw: random.Random, *, words: bool) -> str:
    if words and day <= 31 and draw.random() < 0.2:
        return ORDINALS[day - 1] if draw.random() < 0.7 else ORDINALS[day - 1].replace("-", " ")
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending if draw.random() < 0.92 else draw.choice(('th', 'th', 'st', 'nd', 'rd'))}"


def _month(month: int, draw: random.Random, *, full_stop: bool) -> str:
    name = MONTHS[month - 1]
    if draw.random() < 0.12:
        name = mistyped(name, draw)
    elif draw.random() < 0.45 and len(name) > 3:
        name = name[:4] if month == 9 and draw.random() < 0.5 else name[:3]
        name += "." if full_stop and draw.random() < 0.3 else ""
    return name.upper() if draw.random() < 0.08 else name


def mistyped(name: str, draw: random.Random) -> str:
    """The name with a letter too few, too many or wrong, or two of them swapped; the first letter stays.

    Short names stay too, but for a letter doubled: what is left of "May" would be no month."""
    place = draw.randrange(1, len(name))
    if len(name) < 5:
        return name[:place] + name[place] + name[place:] if len(name) == 4 else name
    kind = draw.choice(("drop", "drop", "double", "swap", "swap", "add", "change"))
    if kind == "drop":
        return name[:place] + name[place + 1 :]
    if kind == "double":
        return name[:place] + name[place] + name[place:]
    if kind == "swap":
        place = min(place, len(name) - 2)
        return name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    letter = draw.choice("aeiourstnlm")
    return name[:place] + letter + name[place + (kind == "change") :]


def _year(year: int, draw: random.Random, *, apostrophe: bool) -> str:
    if 1950 <= year < 2050 and draw.random() < 0.25:
        mark = draw.choice("'''’") if apostrophe and draw.random() < 0.4 else ""
        return f"{mark}{year % 100:02d}"
    return str(year)


def _with_weekday(text: str, number: int, draw: random.Random) -> str:
    chance = draw.random()
    if chance > 0.2:
        return text
    number = number if draw.random() < 0.8 else draw.randrange(7)  # a wrong one must not mislead
    long = WEEKDAYS[number]
    name = draw.choice((long, long, *(short for short in SHORT_WEEKDAYS if short[:3] == long[:3])))
    if len(name) > 5 and draw.random() < 0.1:
        name = mistyped(name, draw)
    elif len(name) < 6 and draw.random() < 0.2:
        name += "."
    if chance > 0.16:
        return draw.choice((f"{text}, {name}", f"{text} ({name})"))
    the = "" if text.startswith("the") else draw.choice(("", "", "the "))
    return name + draw.choice((" ", ", ")) + the + text


def _with_time(text: str, draw: random.Random) -> str:
    """Sometimes with a time of the day, as in a time stamp or in a sentence."""
    if draw.random() > 0.15:
        return text
    time = time_of_day(draw)
    if re.fullmatch(r"[0-9]{4}[-/]?[0-9]{2}[-/]?[0-9]{2}", text) and draw.random() < 0.5:
        if len(text) == 8:
            return f"{text}{draw.choice('T_')}{draw.randrange(240000):06d}{draw.choice(('', 'Z'))}"
        return f"{text}T{time}"
    if draw.random() < 0.3:
        return f"{time}{draw.choice((' on ', ' ', ', '))}{text}"
    if re.search("[A-Za-z] [0-9]{1,2} [0-9]{4}$", text) and draw.random() < 0.4:
        return f"{text[:-5]} {time} {text[-4:]}"  # Sat Oct 25 14:02:11 UTC 2014
    if re.search("[A-Za-z]/[0-9]{4}$", text):
        return f"{text}:{time}"  # as servers write it into their logs
    return f"{text}{draw.choice((' ', ' ', ', ', ' at '))}{time}"


def _spaced(text: str, draw: random.Random) -> str:
    """Sometimes with spaces too many, inside or around, or with a full stop."""
    if draw.random() < 0.03:
        text += "."
    chance = draw.random()
    if chance < 0.03 and len(text) < 40:
        text = text.replace(" ", "  ")
    elif chance < 0.1:
        place = draw.choice([found.start() for found in re.finditer(" ", text)] or [0])
        text = text[:place] + " " * draw.choice((1, 1, 2, 3)) + text[place:]
    return " " * (draw.random() < 0.04) + text + " " * (draw.random() < 0.04)


def _in_another_case(text: str, draw: random.Random) -> str:
    chance = draw.random()
    if chance < 0.2:
        return text.lower()
    if chance < 0.3:
        return text.upper()
    return text[:1].upper() + text[1:] if chance < 0.5 else text
