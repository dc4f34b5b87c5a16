"""Texts that name several days, such as "from 3 to 5 May 2021", and the names of months.

A text is mapped to a string of kinds, one letter for each of its words, numbers and signs. Patterns of kinds
distinguish days that share a month or a year from a number that happens to precede a date: "Room 3 - 4 May 2021".
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from model.cross_attention.written_dates import MONTHS, SHORT_WEEKDAYS, WEEKDAYS

Token = tuple[str, re.Match[str]]  # its kind, and its match

_WEEKDAY = re.compile(rf"(?<![a-z])(?:{'|'.join((*WEEKDAYS, *SHORT_WEEKDAYS))})(?![a-z])[.,]*", re.IGNORECASE)
_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)*[^\W\d_]*|[^\W\d_]+|[^\w\s]")
_NUMBER = re.compile(r"([0-9]{1,4})(st|nd|rd|th)?")
_SIGNS = "-‐‑–—−/~+;&"
_JOINING = ("to", "until", "till", "thru", "through", "and", "or")
_SKIPPED = {"of", "the", "day", "days", "in", "year", "ad", "on", "from", "between", "both", "either", *".'’"}
_DAY, _YEAR = "[dD]", "c?[yDn]"
_AND_DAY = f"(?:m?[jc]+m?|m){_DAY}"
_SEVERAL = [  # joined days, with the position of the month and the year
    re.compile(f"(?P<days>{_DAY}(?:{_AND_DAY})+m){_YEAR}"),  # 3 - 4 May 2021
    re.compile(f"(?<!{_DAY})(?P<days>m{_DAY}(?:{_AND_DAY})+m?){_YEAR}"),  # May 3 - 4, 2021
    re.compile(f"yc?(?P<days>m{_DAY}(?:{_AND_DAY})+)(?![xyn])"),  # 2021 May 3 - 4
    re.compile(f"yc?(?P<days>{_DAY}(?:{_AND_DAY})+m)(?!{_YEAR})"),  # 2021, 3 - 4 May
]
_AND = rf"(?:[{re.escape(_SIGNS)}]|\s*&\s*|\s+(?:and/or|{'|'.join(_JOINING)})\s+)(?:the\s+)?"
_TWO = [  # joined years, and joined days in numbers alone
    re.compile(rf"(?<![0-9])(?P<one>[0-9]{{4}}){_AND}(?P<other>[0-9]{{4}})(?![0-9])"),
    re.compile(
        rf"(?<![0-9./-])(?P<one>[0-9]{{1,2}}[./][0-9]{{1,2}})\.?(?:{_AND}|\s*[{re.escape(_SIGNS)}]\s*)"
        r"(?P<other>[0-9]{1,2}[./][0-9]{1,2})(?=[./](?:[0-9]{4}|[0-9]{2})(?![0-9]))"
    ),
]
_MONTH_OF = {name.lower(): number for number, name in enumerate(MONTHS, 1)}
_MONTH_OF |= {name[:3]: number for name, number in _MONTH_OF.items()} | {"sept": 9}


def split_joined_days(text: str) -> list[str]:
    """Split a lower-case text into one text for each of the distinct days, or years, that it joins: "3 may 2021" and "4
    may 2021" for "3-4 may 2021". Returns the text as it is if it joins none."""
    text = _WEEKDAY.sub(" ", text)
    days = _days(text)
    if len(days) > 1:
        return days
    for pattern in _TWO:
        for found in pattern.finditer(text):
            parts = found["one"], found["other"]
            if parts[0] != parts[1] and all(map(_may_stand, parts)) and (pattern is not _TWO[0] or _of_a_date(found)):
                return [
                    text[: found.start("one")] + found[name] + text[found.end("other") :] for name in ("one", "other")
                ]
    return [text]


def _days(text: str) -> list[str]:
    tokens = [(kind, found) for found in _TOKEN.finditer(text) if (kind := _kind(found[0]))]
    kinds = "".join(kind for kind, _ in tokens)
    for pattern in _SEVERAL:
        barred = 0
        for found in overlapping(pattern, kinds):
            first, last = found.span("days")
            if end := _attached(tokens, first, last):
                barred = max(barred, end)
            elif first >= barred:
                days = [index for index in range(first, last) if kinds[index] in "dD"]
                months = [_month_at(index, first, last, kinds) for index in days]
                year = tokens[found.start() if kinds[found.start()] == "y" else found.end() - 1]
                named = {
                    (int(_digits(tokens[index])), month_of(tokens[month][1][0])): f"{_digits(tokens[index])} "
                    f"{tokens[month][1][0]} {_digits(year)}"
                    for index, month in zip(days, months, strict=True)
                }
                if len(named) > 1:
                    return list(named.values())
    return []


def _kind(token: str) -> str:
    """Return the kind of a token: d, a day; D, a day or a year; n, a two-digit year; y, a four-digit one; m, a month;
    j, a join of two days; c, a comma; x, any other word or number; s, any other sign; "" for a word without meaning."""
    if number := _NUMBER.fullmatch(token):
        digits, ordinal = number.groups()
        if len(digits) < 3 and 1 <= int(digits) <= 31:
            return "d" if ordinal or len(digits) == 1 else "D"
        return {2: "n", 4: "y"}.get(len(digits), "x")
    if token in _SKIPPED:
        return ""
    if token in _JOINING or token in _SIGNS:
        return "j"
    if month_of(token):
        return "m"
    return "c" if token == "," else "x" if token[0].isalnum() or token in "#№$€£" else "s"


def _attached(tokens: list[Token], first: int, last: int) -> int:
    """Return the end of the numbers that belong to the word before the first day, as in "Room 3 - 4 May 2021" and "Part
    1 and 2, 4 May 2021": at a comma, or a sign with spaces. 0 if there are none, as in "on May 3-4, 2021"."""
    kinds = "".join(kind for kind, _ in tokens)
    if first == 0 or kinds[first - 1] not in "xndD" or "m" in kinds[first : first + 2]:
        return 0
    for index in range(first + 1, last - 1):
        (_, before), (kind, sign), (_, after) = tokens[index - 1 : index + 2]
        loose = before.end() < sign.start() or sign.end() < after.start()
        if kind == "c" or (kind == "j" and sign[0] in _SIGNS.replace("&", "") and loose):
            return index
    return 0


def _month_at(day: int, first: int, last: int, kinds: str) -> int:
    """Return the index of a day's month, from first up to last: beside it, or else with the first or the last day."""
    sides = (day - 1, day + 1) if kinds[first] == "m" else (day + 1, day - 1)
    for side in sides:
        if first <= side < last and kinds[side] == "m":
            return side
    return kinds.rfind("m", first, day) if kinds[first] == "m" else kinds.find("m", day)


def _digits(token: Token) -> str:
    return re.sub("[^0-9]", "", token[1][0])


def _of_a_date(years: re.Match[str]) -> bool:
    """Whether a day or a month comes right before two years, or a month after them."""
    before = re.search(r"([^\W\d_]+|(?<![0-9])[0-9]{1,2})[.,]?\s*$", years.string[: years.start()])
    after = re.match(r",?\s*([^\W\d_]+)", years.string[years.end() :])
    return bool(before and (before[1].isdigit() or month_of(before[1]))) or bool(after and month_of(after[1]))


def _may_stand(numbers: str) -> bool:
    """Whether this is a day and a month in either order, or a four-digit year."""
    smallest, *more = sorted(int(number) for number in re.split("[./]", numbers))
    return not more or (1 <= smallest <= 12 and more[0] <= 31)


def overlapping(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield all matches, including those that begin within another one."""
    found = pattern.search(text)
    while found:
        yield found
        found = pattern.search(text, found.start() + 1)


@lru_cache(maxsize=4_096)
def month_of(word: str) -> int:
    """Return the number of a month from its name with at most one wrong letter; 0 if it is no month."""
    if word in _MONTH_OF:
        return _MONTH_OF[word]
    near = [name for name in MONTHS if len(word) > 3 < len(name) and _one_apart(word, name.lower())]
    return MONTHS.index(near[0]) + 1 if len(near) == 1 else 0


def _one_apart(word: str, name: str) -> bool:
    """Whether one letter is extra, missing or wrong, or two neighbors are swapped, and the first letter is right."""
    if word[:1] != name[:1] or abs(len(word) - len(name)) > 1:
        return False
    pairs = zip(word, name, strict=False)
    begin = next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(word), len(name)))
    rest, right = word[begin:], name[begin:]
    swapped = rest[1::-1] + rest[2:]
    return rest[1:] in (right, right[1:]) or rest == right[1:] or swapped == right
