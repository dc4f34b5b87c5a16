"""Texts that are no date: words, numbers of other kinds, markup, other scripts, half dates, days that are not there."""

import random

from model.cross_attention.days import FIRST_DAY, LAST_DAY, MONTHS, NO_DATE, ORDINALS, SHORT_WEEKDAYS, WEEKDAYS
from model.cross_attention.reading import read
from model.cross_attention.written_dates import (
    AFTER,
    BEFORE,
    UNKNOWN_CHARACTERS,
    mistyped,
    time_of_day,
    with_surroundings,
    word,
    words,
    write_numbers,
)

LIKE_MONTHS = ("may", "march", "august", "May", "March", "April", "June", "August", "mark", "jan", "dec", "sun", "sat")
DAYS_IN = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # at the most


def write_none(draw: random.Random) -> str:
    """A text that names no whole day from 1900 to 2099 by the rules of reading.py."""
    while True:
        text = draw.choice(KINDS)(draw)
        if not read(text) and text:
            return text


def none_examples(count: int, draw: random.Random) -> list[tuple[str, str]]:
    """(a text that is no date, what to write for it)."""
    return [(write_none(draw), NO_DATE) for _ in range(count)]


def _sentence(draw: random.Random) -> str:
    text = words(draw, 9)
    if draw.random() < 0.3:
        text = f"{draw.choice(LIKE_MONTHS)} {text}" if draw.random() < 0.5 else f"{text} {draw.choice(LIKE_MONTHS)}"
    if draw.random() < 0.3:
        text = f"{draw.choice(BEFORE)} {text}"
    if draw.random() < 0.2:
        text = f"{text} {draw.choice(AFTER)}"
    text = text.capitalize() if draw.random() < 0.5 else text
    return (text.upper() if draw.random() < 0.05 else text) + draw.choice(("", ".", "!", "?"))


def _half_date(draw: random.Random) -> str:
    """A month and a year, a day and a month, a weekday, a time …"""
    month = draw.choice(MONTHS)
    month = draw.choice((month, month, month[:3], mistyped(month, draw)))
    day, year = str(draw.randint(1, 31)), str(draw.randint(FIRST_DAY.year, LAST_DAY.year))
    ordinal = draw.choice((ORDINALS[int(day) - 1], f"{day}th"))
    text = draw.choice(
        (
            f"{month} {year}", f"{month}, {year}", f"{day} {month}", f"{month} {day}", f"the {ordinal} of {month}",
            f"{month} {ordinal}", year, month, f"summer of {year}", f"in {year}", f"{ordinal} of the month",
            f"next {draw.choice(WEEKDAYS)}", draw.choice(SHORT_WEEKDAYS), f"{draw.choice(WEEKDAYS)}, {month} {day}",
            f"{month[:3]}-{year[2:]}", f"{int(day) % 12 + 1}/{year}", f"{year}-{int(day) % 12 + 1:02d}",
            f"{day}/{int(day) % 12 + 1}", time_of_day(draw), f"{month} {year}, {time_of_day(draw)}",
            f"{word(draw)} {month}", f"{month} {word(draw)}", f"the {ordinal} of {word(draw)} {year}",
        )
    )  # fmt: skip
    return with_surroundings(text, draw) if draw.random() < 0.3 else draw.choice((text, text, text.lower()))


def _impossible(draw: random.Random) -> str:
    """In the same shapes as dates: a day too many, a month too many, a year too early or too late."""
    year, month = draw.randint(FIRST_DAY.year, LAST_DAY.year), draw.randint(1, 12)
    day = draw.randint(1, DAYS_IN[month - 1])
    kind = draw.choice((*["day after the last"] * 3, "leap", "leap", "day", "month", "year", "nothing"))
    if kind == "day after the last":
        month = draw.choice((2, 2, 4, 6, 9, 11))
        day = draw.randint(DAYS_IN[month - 1] + 1, 31)
    elif kind == "day":
        day = draw.randint(32, 99)
    elif kind == "leap":
        month, day, year = 2, 29, draw.choice([year for year in range(1900, 2100) if year % 4 or year == 1900])
    elif kind == "month":
        month, day = draw.randint(13, 99), draw.randint(13, 60)
    elif kind == "year":
        year = draw.choice((draw.randint(1000, FIRST_DAY.year - 1), draw.randint(LAST_DAY.year + 1, 2999)))
    else:
        return draw.choice(("00/00/0000", "0000-00-00", f"{year}-00-00", f"00.00.{year}", f"0/0/{year}"))
    return write_numbers(year, month, day, draw.randrange(7), draw)


def _numbers(draw: random.Random) -> str:
    """Telephone numbers, prices, addresses of computers, versions, sums, and digits of no kind."""
    few, many = draw.randrange(100), draw.randrange(1000, 10_000)
    text = draw.choice(
        (
            f"+{few} {draw.randint(10, 99)} {many} {draw.randrange(10_000):04d}", f"({many % 1000}) 555-{many:04d}",
            f"{many % 900 + 100}-{draw.randint(100, 999)}-{many}", f"0{many} {draw.randrange(10**6):06d}",
            f"${few}.{draw.randrange(100):02d}", f"${few},{many % 1000:03d}.00", f"{few}.{few:02d} euros", f"{few} %",
            ".".join(str(draw.randrange(256)) for _ in range(4)), f"version {few % 12}.{draw.randrange(30)}.{few % 10}",
            f"v{few % 9}.{few}", f"{few} + {many % 97} = {many % 200}", f"{few} x {many}", str(few), f"{many}",
            f"{few} {few % 37}", f"ISBN 978-{few % 10}-{few}-{many}{few}-{few % 10}", f"{few}/{many % 100}",
            f"{few} {word(draw)}, {many % 97} {word(draw)}", f"{word(draw)} {few}", f"{many} {words(draw, 4)}",
            str(draw.randrange(10**5, 10**12)), f"{few}.{many}", f"-{few}", f"#{many}", f"{few}:{few % 60:02d}",
            f"{few} {words(draw, 3)} {many}", "-".join(str(draw.randrange(1000)) for _ in range(draw.randint(2, 5))),
        )
    )  # fmt: skip
    return with_surroundings(text, draw) if draw.random() < 0.3 else text


def _markup(draw: random.Random) -> str:
    name = draw.choice(("p", "b", "div", "script", "time", "a", "h1", word(draw)))
    inside = draw.choice((words(draw, 4), "alert(1)", "", str(draw.randrange(100))))
    return draw.choice(
        (
            f"<{name}>{inside}</{name}>", f"<{name}>", f"{{{name}: {inside}}}", f"# {inside}", f"[{name}]({inside})",
            f"**{inside}**", f"${inside}$", f"{name}@{inside}.com", f"https://{name}.org/{inside}", f"`{inside}`",
            "".join(draw.choices("!#$%&()*+,-./:;<=>?@[]^_{|}~ ", k=draw.randint(1, 12))), " " * draw.randint(1, 6),
        )
    )  # fmt: skip


def _other_script(draw: random.Random) -> str:
    """Characters for which the model has one token, with words and numbers between."""

    def unknown() -> str:
        return "".join(draw.choices(UNKNOWN_CHARACTERS, k=draw.randint(1, 6)))

    parts = [draw.choice((unknown(), word(draw), str(draw.randrange(50)))) for _ in range(draw.randint(0, 6))]
    return draw.choice(("", " ")).join([unknown(), *parts])


KINDS = (_sentence, _sentence, _half_date, _half_date, *[_impossible] * 3, _numbers, _markup, _other_script)
