"""The days of the dates model, those held out from training, and how they are written in English, in sentences, with
times and typing errors.

The meaning of a text is defined in reading.py.
"""

import random
import re
from datetime import date

NO_DATE = "none"  # the target of a text that is no date
SURE = 0.9  # answers below this probability are reported as unsure; the card has the accuracy of the others
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
DAYS = LAST_DAY.toordinal() - FIRST_DAY.toordinal() + 1
HELD_OUT_DAYS = 4_000  # days that never occur in training
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
    """Return the day with this number, from 0 up to DAYS (exclusive)."""
    return date.fromordinal(FIRST_DAY.toordinal() + number)


def held_out_days() -> list[date]:
    """Return the same HELD_OUT_DAYS days each time; training draws from all others."""
    return [day_of(number) for number in random.Random("held out").sample(range(DAYS), HELD_OUT_DAYS)]


def training_days() -> list[date]:
    """Return all days that are not held out."""
    held_out = set(held_out_days())
    return [day for day in map(day_of, range(DAYS)) if day not in held_out]


def on_calendar(year: int, month: int, day: int) -> date | None:
    """Return the day of the calendar, None if it does not exist."""
    try:
        return date(year, month, day)
    except ValueError:
        return None


def possible(year: int, month: int, day: int) -> date | None:
    """Return the day of the calendar if it exists and is in the model's range; else None."""
    found = on_calendar(year, month, day)
    return found if found and FIRST_DAY <= found <= LAST_DAY else None


def year_in_words(year: int) -> tuple[str, ...]:
    """Return a year in words: nineteen ninety-nine; two thousand and five, two thousand five; not twenty five."""
    century, rest = divmod(year, 100)
    if year // 1000 == 2 and rest + century % 10 * 100 < 20:
        spelled = "two thousand" if rest == 0 else f"two thousand and {_below_hundred(rest)}"
        return (spelled, spelled.replace(" and ", " ")) if rest else (spelled,)
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


WORDS = """
a about after again all and any are as at back be because been before best big bought bring but by called came can
car cat cats chapter children city cold come cost day days did do dog door down due each end ends even ever exam
family few fine flight for found friend from garden gave go good got had happy has have he hello help her here him
his home hot hour house how if in into is it its just kept know last late later left letter like little long look
lost made man many me meet meeting men met milk money more morning most much my name never new next night no not
note now number of off old on once one only open or other our out over page paid park party people place please red
rain read room said saw school see seen sent she sister snow so some soon start still story sun table take tell than
that the their them then there they thing think this ticket time to today told town train two under until up us
version very visit walk want war was water way we week well went were what when where which while who why will wine
winter with woman work world would write year yes yesterday you young your
""".split()  # noqa: SIM905 - a list of strings would be ten times as long
BEFORE = (
    "on", "I was born on", "She was born on", "He died on", "born on", "born", "We met on", "They married on", "due",
    "Due by", "The deadline is", "The meeting is on", "Our flight leaves on", "It happened on", "Released",
    "Published on", "Posted on", "Updated", "Last modified", "Valid until", "Best before", "Expires", "Expiry date:",
    "Date of birth:", "DOB", "DOB:", "D.O.B.", "date", "date:", "Date:", "Date", "date=", "Dated", "Signed on",
    "Signed this", "Given on this", "on this", "Invoice of", "Letter of", "Paris,", "London,", "Berlin,", "in Rome on",
    "Dear Sir,", "Founded on", "Opened on", "Closed from", "from", "until", "since", "by", "before", "after", "as of",
    "effective", "until and including", "starting", "Today is", "It is", "It was", "was it", "so,", "see", "cf.", "c.",
    "ca.", "circa", "about", "around", "my birthday is", "the party is on", "The war ended on", "It snowed on",
    "Week 3:", "page 12:", "room 7 on", "room 12:", "No. 5:", "chapter 4:", "3 cats born", "the 2 of us met on",
    "IMG_", "report-", "backup_", "log ", '{"date": "', "<time>", "file ",
)  # fmt: skip
AFTER = (
    "was a good day", "in the morning", "in the rain", "at home", "in Paris", "in London with friends", "or so",
    "I think", "they say", "she said", "if I am right", "and then we left", "and we were happy", "then", "ago", "on",
    "only", "to today", "is too late", "works for me", "by two sisters", "(late)", "see you there", "and I am scared",
    "in the park", "with my family", "was written on it", "when we last met", "for 2 people", "in room 12", "started",
    ".jpg", ".pdf", ".tar.gz", '"}', "</time>", "AD", "A.D.", ":(", "with 3 cats",
)  # fmt: skip
BRACKETS = (("(", ")"), ("[", "]"), ('"', '"'), ("'", "'"), ("“", "”"), ("**", "**"), ("<b>", "</b>"), ("_", "_"))
UNKNOWN_CHARACTERS = "éüßñçœ二〇一零年月日你好世界时间🦊🎉€—…“”«»½²中文"  # all map to one token
LONGEST = 88  # characters: the model takes 96, and spaces may be added
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ZONES = ("Z", " UTC", " GMT", "+00:00", "+02:00", "-07:00", " +0000", " -0500", " GMT+0200")


def words(draw: random.Random, max_words: int) -> str:
    """Return one to `max_words` words, most of them English."""
    return " ".join(word(draw) for _ in range(draw.randint(1, max_words)))


def word(draw: random.Random) -> str:
    """Return a common word, or random letters."""
    if draw.random() < 0.8:
        return draw.choice(WORDS)
    made = "".join(draw.choices(LETTERS, k=draw.randint(2, 9)))
    return made.capitalize() if draw.random() < 0.5 else made


def with_surroundings(text: str, draw: random.Random) -> str:
    """Put the text into a sentence, file name, brackets or markup; unless the result is longer than LONGEST."""
    alone = text
    if draw.random() < 0.15:
        opened, closed = draw.choice(BRACKETS)
        text = opened + text + closed
    if draw.random() < 0.7:
        before = draw.choice(BEFORE) if draw.random() < 0.7 else words(draw, 5) + draw.choice(("", "", ",", ":"))
        text = before + ("" if before[-1] in '_-"=>' else " ") + text
    if draw.random() < 0.5:
        after = draw.choice(AFTER) if draw.random() < 0.6 else words(draw, 5)
        text += ("" if after[0] in '."<' else draw.choice((" ", " ", ", ", ". ", "; ", ": ", " - ", " — "))) + after
    text += draw.choice((".", "!", "?", "", "", ""))
    return text if len(text) < LONGEST else alone


def time_of_day(draw: random.Random) -> str:
    """Return a random time: 10:15, 10:15:00.123+02:00, 5 pm …"""
    hour, minute, second = draw.randrange(24), draw.randrange(60), draw.randrange(60)
    if draw.random() < 0.25:
        half = draw.choice(("am", "pm", " am", " pm", " AM", "PM", " a.m.", " p.m."))
        return (f"{hour % 12 + 1}:{minute:02d}" if draw.random() < 0.7 else f"{hour % 12 + 1}") + half
    text = f"{hour:02d}:{minute:02d}" if draw.random() < 0.7 else f"{hour}:{minute:02d}"
    if draw.random() < 0.5:
        text += f":{second:02d}"
        if draw.random() < 0.25:
            text += f".{draw.randrange(1000):03d}"
    return text + (draw.choice(ZONES) if draw.random() < 0.3 else "")


TEMPLATES = (  # {d} day, {o} ordinal day, {m} name of the month, {Y} year, {y} short or spoken year
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
CHARACTERS = "".join(map(chr, range(32, 127))) + "’"  # shown as typed; not all of them occur in dates


def write(day: date, draw: random.Random) -> str:
    """Write the day in a random format. In numbers alone the month comes first only where no day could."""
    return write_numbers(day.year, day.month, day.day, day.weekday(), draw)


def write_numbers(year: int, month: int, day: int, weekday: int, draw: random.Random) -> str:
    """Write a date as `write` does, also one not on the calendar: days up to 99, months above 12 in digits."""
    named = 1 <= month <= 12 and draw.random() < 0.65
    text = _named(year, month, day, draw) if named else _numeric(year, month, day, draw)
    text = _with_time(_with_weekday(text, weekday, draw), draw)
    if draw.random() < 0.35:
        text = with_surroundings(text, draw)
    text = _spaced(text, draw)
    case = draw.random()
    if case < 0.3:
        return text.lower() if case < 0.2 else text.upper()
    return text[:1].upper() + text[1:] if case < 0.5 else text


def examples(days: list[date], count: int, draw: random.Random) -> list[tuple[str, str]]:
    """Return pairs (date as written, ISO 8601) for days drawn from these."""
    chosen = draw.choices(days, k=count)
    return [(write(day, draw), day.isoformat()) for day in chosen]


def _named(year: int, month: int, day: int, draw: random.Random) -> str:
    template = draw.choice(TEMPLATES)
    if draw.random() < 0.3:
        template = draw.choice(("{d} {m} {y}", "{m} {d}, {y}", "{o} of {m} {y}", "{m} {o}, {y}", "the {o} of {m} {y}"))
    joined = "}{" in template  # without a separator, a day in words runs into the month
    known = FIRST_DAY.year <= year <= LAST_DAY.year
    spoken = known and not joined and " {y}" in template and draw.random() < 0.04
    digits = _digits(day, draw)
    if not joined and day <= 31 and draw.random() < 0.2:
        ordinal = ORDINALS[day - 1] if draw.random() < 0.7 else ORDINALS[day - 1].replace("-", " ")
    else:
        ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
        ordinal = f"{day}{ending if draw.random() < 0.92 else draw.choice(('th', 'th', 'st', 'nd', 'rd'))}"
    name = MONTHS[month - 1]
    if draw.random() < 0.12:
        name = mistyped(name, draw)
    elif draw.random() < 0.45 and len(name) > 3:
        name = name[:4] if month == 9 and draw.random() < 0.5 else name[:3]
        name += "." if not joined and draw.random() < 0.3 else ""
    name = name.upper() if draw.random() < 0.08 else name
    year_text = draw.choice(year_in_words(year)) if spoken else _year(year, draw, apostrophe=not joined)
    return template.format(d=digits, o=ordinal, m=name, Y=year, y=year_text)


def _numeric(year: int, month: int, day: int, draw: random.Random) -> str:
    template = draw.choice(YEAR_FIRST if draw.random() < 0.4 else DAY_FIRST)
    if template in DAY_FIRST and day > 12 and draw.random() < 0.5:
        template = draw.choice(MONTH_FIRST)
    if ":02d" in template:
        return template.format(d=day, n=month, Y=year)
    return template.format(d=_digits(day, draw), n=_digits(month, draw), Y=year, y=_year(year, draw, apostrophe=False))


def _digits(number: int, draw: random.Random) -> str:
    return f"{number:02d}" if draw.random() < 0.4 else str(number)


def mistyped(name: str, draw: random.Random) -> str:
    """Return the name with a letter missing, extra or wrong, or two of them swapped; the first letter stays. Names of
    four letters only get one doubled, shorter ones stay: a part of "May" would be no month."""
    index = draw.randrange(1, len(name))
    if len(name) < 5:
        return name[:index] + name[index] + name[index:] if len(name) == 4 else name
    kind = draw.choice(("drop", "drop", "double", "swap", "swap", "add", "change"))
    if kind == "drop":
        return name[:index] + name[index + 1 :]
    if kind == "double":
        return name[:index] + name[index] + name[index:]
    if kind == "swap":
        index = min(index, len(name) - 2)
        return name[:index] + name[index + 1] + name[index] + name[index + 2 :]
    letter = draw.choice("aeiourstnlm")
    return name[:index] + letter + name[index + (kind == "change") :]


def _year(year: int, draw: random.Random, *, apostrophe: bool) -> str:
    if 1950 <= year < 2050 and draw.random() < 0.25:
        mark = draw.choice("'''’") if apostrophe and draw.random() < 0.4 else ""
        return f"{mark}{year % 100:02d}"
    return str(year)


def _with_weekday(text: str, number: int, draw: random.Random) -> str:
    chance = draw.random()
    if chance > 0.2:
        return text
    number = number if draw.random() < 0.8 else draw.randrange(7)  # a wrong weekday must not change the date
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
    """Sometimes add a time of day, as in a time stamp or in a sentence."""
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
        return f"{text}:{time}"  # as in server logs
    return f"{text}{draw.choice((' ', ' ', ', ', ' at '))}{time}"


def _spaced(text: str, draw: random.Random) -> str:
    """Sometimes add extra spaces, inside or around, or a full stop."""
    if draw.random() < 0.03:
        text += "."
    chance = draw.random()
    if chance < 0.03 and len(text) < 40:
        text = text.replace(" ", "  ")
    elif chance < 0.1:
        index = draw.choice([found.start() for found in re.finditer(" ", text)] or [0])
        text = text[:index] + " " * draw.choice((1, 1, 2, 3)) + text[index:]
    return " " * (draw.random() < 0.04) + text + " " * (draw.random() < 0.04)
