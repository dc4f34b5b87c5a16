"""What stands around a date, and what stands where there is none: words, sentences, numbers, times of the day."""

import random

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
""".split()  # noqa: SIM905 - as a list of strings it would fill the screen
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
UNKNOWN_CHARACTERS = "éüßñçœ二〇一零年月日你好世界时间🦊🎉€—…“”«»½²中文"  # the model reads one token for all of them
LONGEST = 88  # characters: the model reads 96, and spaces may be added
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ZONES = ("Z", " UTC", " GMT", "+00:00", "+02:00", "-07:00", " +0000", " -0500", " GMT+0200")


def words(draw: random.Random, most: int) -> str:
    """One to so many words, most of them English."""
    return " ".join(word(draw) for _ in range(draw.randint(1, most)))


def word(draw: random.Random) -> str:
    """A common word, or letters that are no word."""
    if draw.random() < 0.8:
        return draw.choice(WORDS)
    made = "".join(draw.choices(LETTERS, k=draw.randint(2, 9)))
    return made.capitalize() if draw.random() < 0.5 else made


def with_surroundings(text: str, draw: random.Random) -> str:
    """The text within a sentence, a file's name, brackets or markup; alone where that is longer than LONGEST."""
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
    """10:15, 10:15:00.123+02:00, 5 pm …"""
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
