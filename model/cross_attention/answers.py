"""What the dates model answers: a day in ISO 8601, or that a text is none."""

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
