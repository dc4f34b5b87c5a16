"""What is said of an answer, and why it is right."""

from markupsafe import Markup

from i18n import say
from lessons.questions import Answer
from viz.lessons import screen, words


def verdict(answer: Answer, given: int | None, question: str = "") -> Markup:
    """given: the number of the choice; None, or of none, where the reader chose nothing. question: shown above it."""
    right = " / ".join(words.plain(answer.choices[place]) for place in sorted(answer.right))
    own = words.plain(answer.choices[given]) if given is not None and given < len(answer.choices) else None
    if own is None:
        kind, first = "told", say("The answer is: {right}", right=right)
    elif given in answer.right:
        kind, first = "right", say("Your answer: {own}. That is right.", own=own.rstrip(".。"))
    else:
        kind = "wrong"
        first = say("Your answer: {own}. Not quite. The answer is: {right}", own=own.rstrip(".。"), right=right)
    return screen.verdict(kind, [first, words.plain(answer.why)], question)
