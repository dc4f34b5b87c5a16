"""What is said of an answer, and why it is right."""

from markupsafe import Markup

from model.language import say
from model.lessons.questions import Answer
from viz.lessons import screen, words


def verdict(answer: Answer, given: int | None) -> Markup:
    """given: the number of the choice; None where the reader was not asked."""
    right = " / ".join(words.plain(answer.choices[place]) for place in sorted(answer.right))
    if given is None:
        kind, first = "told", say("Right is: {right}", right=right)
    elif given in answer.right:
        kind, first = "right", say("That is right.")
    else:
        kind, first = "wrong", say("Not this one. Right is: {right}", right=right)
    return screen.verdict(kind, [first, words.plain(answer.why)])
