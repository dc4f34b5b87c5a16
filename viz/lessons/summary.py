"""A lesson's summary to print: its aim, what was predicted correctly, and what to review."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from i18n import N_, say
from lessons.statement import SHOWN
from viz.html import join, tag
from viz.lessons.glossary import prose
from viz.lessons.screen import ASKS, own_words, plain
from viz.saved.standalone import document

if TYPE_CHECKING:
    from lessons.lesson import Lesson
    from lessons.questions import Answer

SECTIONS = {  # each kind of answer with its title
    "right": N_("Predicted correctly: {count}"),
    "wrong": N_("To review: {count}"),
    "told": N_("Answer shown without a prediction: {count}"),
    "open": N_("Not answered yet: {count}"),
}


@dataclass(frozen=True, eq=False)
class QuestionSummary:
    """A question of a lesson, of the step of this number. answer: None where it cannot be computed. given: the choice,
    or SHOWN; None where nothing was chosen."""

    number: int
    title: str
    question: str
    answer: "Answer | None"
    given: int | None

    @property
    def kind(self) -> str:
        """Of SECTIONS."""
        if self.answer is None or self.given is None:
            return "open"
        if self.given == SHOWN:
            return "told"
        return "right" if self.given in self.answer.right else "wrong"


def summary_page(lesson: "Lesson", asked: Sequence[QuestionSummary]) -> str:
    """A whole document, for a browser to print."""
    parts = [tag("h1", lesson.title), tag("p", tag("b", say("Aim")) + f": {lesson.aim}")]
    for kind, title in SECTIONS.items():
        some = [one for one in asked if one.kind == kind]
        if some:
            parts += [tag("h2", say(title, count=len(some))), tag("ul", join(map(_item, some)))]
    if lesson.summary:
        parts += [tag("h2", say("Summary")), prose(lesson.summary, "summary")]
    body = tag("main", join(parts))
    return document(lesson.title, body, (), script=(), styles=("lesson.css",))


def _item(one: QuestionSummary) -> Markup:
    step = say("Step {number}: {title}", number=one.number, title=one.title)
    lines = [tag("b", step), tag("div", say(ASKS[one.question]))]
    if one.answer and one.kind != "open":
        own = own_words(one.answer, one.given)
        right = " / ".join(plain(one.answer.choices[number]) for number in sorted(one.answer.right))
        lines += [tag("div", say("Your answer: {own}", own=own))] if own and one.kind != "told" else []
        lines += [tag("div", say("The answer is: {right}", right=right))] if one.kind != "right" else []
        lines.append(tag("div", plain(one.answer.why)))
    return tag("li", join(lines))
