"""A lesson's step as text, the page's style, a map of which lesson builds on which, and a lesson's summary to print."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from i18n import N_, say, say_all, say_count
from lessons.statement import MODELS, OTHER, SHOWN, Statement
from viz.components import source
from viz.html import fixed, join, tag
from viz.lessons.glossary import prose
from viz.numbers import chance, number, percent, perplexity
from viz.saved.standalone import document

if TYPE_CHECKING:
    from lessons.lesson import Ask, Lesson
    from lessons.questions import Answer
    from lessons.reading import ListedLesson

SECTIONS = {  # kind of answer -> title of its section
    "right": N_("Predicted correctly: {count}"),
    "wrong": N_("To review: {count}"),
    "told": N_("Answer shown without a prediction: {count}"),
    "open": N_("Not answered yet: {count}"),
}


def decimal(value: float) -> str:
    """Write a number with two digits after the point, or NaN."""
    return fixed(value, 2) if value == value else "NaN"


FORMATS = {
    "percent": percent,  # of a share
    "chance": chance,  # of a softmax probability
    "nats": lambda value: f"{value:.2f}" if value >= 0.005 else "< 0.01",
    "perplexity": perplexity,  # of a loss
    "change": lambda value: f"{value:+.2f}".replace("-", "−"),
    "weight": number,
    "decimal": decimal,
    "count": "{:,}".format,
}


def run_names(now: str, compared: str) -> tuple[str, str]:
    """Name a step's run and the one that it is compared with. now, compared: their models, which are the names if they
    differ."""
    if now == compared:
        return say("now"), say("before")
    one, other = (say(MODELS[name]) if name in MODELS else name for name in (now, compared))
    return one, other


class _StatementFormatter(Formatter):
    """Formatter of statements: fills {names} in a sentence; a value that is a Statement becomes its sentence."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Statement):
            return plain(value)
        if isinstance(value, tuple):
            return " + ".join(map(plain, value))
        return FORMATS[format_spec](value) if format_spec else str(value)


def plain(statement: Statement) -> str:
    """Return a statement as text. It may contain text from users: escape it where it is shown."""
    return _StatementFormatter().vformat(say(statement.sentence), (), statement.values)


ASKS = {  # questions by kind, for some kinds with the pattern or number asked for
    "loss": N_("Will the mean loss go down, go up or stay the same?"),
    "texts": N_("Will the mean loss go down or up on most of these texts?"),
    "lower": N_("Which of the two has the lower loss on this text?"),
    "looks": N_("Which token does the highlighted one attend to most?"),
    "where": N_("Which part of the image does the highlighted token attend to most?"),
    "sees": N_("How many tokens may the highlighted one attend to?"),
    "next": N_("Which token will the model predict after the highlighted one?"),
    "row": N_("Will the weights in the highlighted token's row change?"),
    "habit": N_("What does this head attend to most?"),
    "future": N_("How much of this head's attention will go to later tokens?"),
    "padding": N_("How much of this head's attention will go to padding?"),
    "picture": N_("Which masks made this picture?"),
    "how_many": N_("On how many of these texts will the mean loss go down?"),
    "weight": N_("How much of its attention will the highlighted token give to the token at {key}?"),
    "which_head.previous": N_("Which of these heads gives the largest share of its attention to the previous token?"),
    "which_head.first": N_("Which of these heads gives the largest share of its attention to the first token?"),
    "which_head.induction": N_(
        "Which of these heads gives the largest share of its attention to what followed the same token earlier?"
    ),
    "norm": N_("How long is the value of the first token, compared with the others of this head?"),
    "number.score": N_("What is the score of “{token}”, to two decimal places?"),
    "number.weight": N_("What is the weight of “{token}”, to two decimal places?"),
    "number.output": N_("What is the first number of the output, to two decimal places?"),
    "becomes": N_("What will happen to the weights of this row?"),
    "earlier": N_("Which score is the first to rise by 0.05?"),
    "steepest": N_("Where does the loss fall fastest, per step?"),
}


def question(ask: "Ask") -> str:
    """Return a step's question as text."""
    more = {"which_head": f".{ask.pattern}", "number": f".{ask.of}"}.get(ask.kind, "")
    return say(ASKS[ask.kind + more], key=ask.key, token=ask.token)


STYLE = (
    f"<style>{source('lesson.css')}{source('lesson_pictures.css')}"
    """
  .st-key-lesson_list :is(a, $page_link) { height: 1.6rem; min-height: 0; padding: 0 0 0 1rem; margin: 0;
    background: transparent; }
  .st-key-lesson_list a p { font-weight: 400; }
  .st-key-lesson_list .st-key-lesson_here a p { font-weight: 600; }
  .st-key-lesson_list $element { margin: 0; }
  .st-key-lesson_heads { max-width: max(16rem, 100dvh - 18rem); }
  .aim { font-size: 1rem; opacity: .85; margin: 0; }
  .st-key-lesson_nav button p { white-space: nowrap; }
  $main button:not(.st-key-lesson_nav *) kbd { border: 1px solid #8888; border-radius: 4px; padding: 0 .3em; }
  $main kbd { opacity: 1; }
  .st-key-curves_and_head { --least: 7rem; } /* half of a column is enough */
  @container main (max-width: 860px) { $column { min-width: 100%; } }
  @media (max-width: 640px) {
    .st-key-lesson_nav { position: fixed; left: 0; right: 0; bottom: 0; z-index: 99; padding: .4rem .6rem;
      background: light-dark(#F5F4F1, #1B1F27); border-top: 1px solid rgba(128,128,128,.3); }
    .st-key-lesson_nav kbd { display: none; }
    .st-key-lesson_nav button { padding-inline: .5rem; }
    .st-key-lesson_nav .st-key-teach p { position: absolute; clip-path: inset(50%); }
    $column:has(.st-key-lesson_nav) { display: contents; }
    [class*="_lesson_figure"] { --least: 8rem; }
    $block_container { padding-bottom: 5rem; } }
  @media (prefers-reduced-motion: reduce) { .verdict { animation: none; } }
</style>
"""
)
PRESENTED = """
<style>
  section$sidebar, $expand_sidebar, $header { display: none; }
  $block_container { padding: 1.2rem 2.4rem 1rem; max-width: none; }
  .prose, .verdict { font-size: max(1.15rem, 1.52vw); line-height: 1.42; max-width: none; }
  $block_container h3, $block_container h4 { padding: 0; }
  $block_container h3 { font-size: max(1.1rem, 1.4vw); }
  $block_container h4 { font-size: max(1.3rem, 1.9vw); }
  .st-key-lesson_question p { font-size: max(1.15rem, 1.52vw); }
  $main [class*="st-key-answer_"] button p { font-size: max(1.05rem, 1.35vw); }
  .st-key-lesson_heads { zoom: var(--zoom);
    max-width: calc((100dvh - max(16.5rem, 18.5vw) - var(--strip, 0px)) / var(--zoom)); }
  .st-key-lesson_chart .chart { height: calc(100dvh - max(7.5rem, 3.7vw) - var(--strip, 0px)) !important; }
  .lesson_picture { font-size: max(1.05rem, 1.25vw); }
  img.scene { width: min(100%, max(20rem, 60vh - var(--strip, 0px))); }
  .katex { font-size: max(1.25rem, 2vw); }
  .katex-display { margin: 0; padding: .2em; }
  [class*="st-key-lesson_training"] p { font-size: max(14px, 1.1vw); }
  $main :is(button, summary, a, label, .st-key-lesson_nav) :is(p, kbd, div), $main kbd {
    font-size: max(14px, 1.1vw); }
  p.key, $caption p { font-size: max(14px, 1.2vw); }
  ol.tokens li { font-size: max(1.1rem, 1.5vw); }
  ol.tokens small { font-size: max(.72rem, 1.15vw); }
  .card { font-size: max(1rem, 1.3vw); max-width: min(max(26rem, 40vw), 90vw); }
  ol.seen li { font-size: max(14px, 1.2vw); }
  p.aim { font-size: max(14px, 1.2vw); }
  @media (max-width: 640px) { $block_container { padding: 1rem 1rem 5rem; } }
</style>
"""


def tokens(pieces: Sequence[str], query: int | None, first: int = 0) -> Markup:
    """Return a row's tokens from index `first` on, with their positions; the query is highlighted."""
    items = [
        tag("li", join([tag("span", piece), tag("small", position)]), class_="query" if position == query else "other")
        for position, piece in enumerate(pieces[first:], first)
    ]
    return tag("ol", join(items), class_="tokens")


def row_tokens(queries: Sequence[str], query: int | None, keys: Sequence[str] = ()) -> Markup:
    """Return the queries as `tokens` does; in cross-attention the keys come before them. keys: of cross-attention."""
    if not keys:
        return tokens(queries, query)
    source = (tag("p", say("Keys: the tokens of the source"), class_="note"), tokens(keys, None))
    return join((*source, tag("p", say("Queries: the tokens of the output"), class_="note"), tokens(queries, query)))


def seen(lines: Sequence[tuple[str, str, str]]) -> Markup:
    """Return a list of a lesson's questions. lines: for each, kind (right, wrong, told, open), step's title, remark."""
    return tag("ol", join(seen_line(*line) for line in lines), class_="seen")


def seen_line(kind: str, title: str, reply: str) -> Markup:
    mark = {"right": "✓", "wrong": "✗"}.get(kind, "·")
    return tag("li", join([tag("b", f"{mark} {title}"), tag("div", reply)]), class_=kind)


def verdict(kind: str, lines: Sequence[str], question: str = "") -> Markup:
    """Return the reply to an answer. kind: right, wrong or told. question: its text, "" if it is on the page."""
    parts = [tag("p", tag("b", question))] if question else []
    return tag("div", join([*parts, *(tag("p", line) for line in lines)]), class_=f"verdict {kind}", role="status")


def scores(questions: int) -> list[str]:
    """Return sentences on {right} correct answers out of 1, 2, and so on up to `questions`; {right} stays open."""
    return [
        say_count("{right} of {count} answer correct.", "{right} of {count} answers correct.", count, right="{right}")
        for count in range(1, questions + 1)
    ]


def choice_text(answer: "Answer", given: int | None) -> str | None:
    """Return the text of the user's choice; None if they chose nothing, or typed a number, which is not stored."""
    return plain(answer.choices[given]) if given is not None and given < len(answer.choices) else None


def verdict_on(answer: "Answer", given: int | None, question: str = "") -> Markup:
    """Return the reply to an answer. given: the index of a choice, OTHER for a wrong number, otherwise no choice, e.g.
    None. question: its text, "" if the page already shows it."""
    right = " / ".join(plain(answer.choices[number]) for number in sorted(answer.right))
    own = choice_text(answer, given)
    if given == OTHER:
        kind, first = "wrong", say("Not quite. The answer is: {right}", right=right)
    elif given in answer.right and answer.number is not None:
        words = N_("That is right. The answer is: {right}; up to {within:g} away counts.")
        kind, first = "right", say(words, right=right, within=answer.within)
    elif own is None:
        kind, first = "told", say("The answer is: {right}", right=right)
    elif given in answer.right:
        kind, first = "right", say("Your answer: {own}. That is right.", own=own.rstrip(".。"))
    else:
        kind = "wrong"
        first = say("Your answer: {own}. Not quite. The answer is: {right}", own=own.rstrip(".。"), right=right)
    return verdict(kind, [first, plain(answer.why)], question)


def lesson_map(found: "list[ListedLesson]") -> Markup:
    """Return a map of which lesson builds on which; empty if no lesson names another."""
    lessons = {one.name: one.lesson for one in found if one.lesson}
    numbers = {one.name: number for number, one in enumerate(found, 1)}
    depths: dict[str, int] = {}
    for name, lesson in lessons.items():  # lessons come after those that they build on
        depths[name] = max((depths[one] + 1 for one in lesson.after if one in depths), default=0)
    if not any(depths.values()):
        return Markup()
    columns = []
    for depth in range(max(depths.values()) + 1):
        items = []
        for name in (one for one, own in depths.items() if own == depth):
            before = [f"{numbers[one]}" for one in lessons[name].after if one in depths]
            needed = tag("small", say("after {numbers}", numbers=say_all(before))) if before else ""
            items.append(tag("li", join([tag("b", numbers[name]), " ", lessons[name].title, " ", needed])))
        columns.append(tag("ul", join(items)))
    return tag("div", join(columns), class_="lesson_map", role="group", aria_label=say("Which lesson builds on which"))


@dataclass(frozen=True, eq=False)
class QuestionSummary:
    """The question of a lesson's step `number`, for the printed summary. answer: None if it cannot be computed. given:
    the choice or SHOWN; None if nothing was chosen."""

    number: int
    title: str
    question: str
    answer: "Answer | None"
    given: int | None

    @property
    def kind(self) -> str:
        """The answer's kind: a key of SECTIONS."""
        if self.answer is None or self.given is None:
            return "open"
        if self.given == SHOWN:
            return "told"
        return "right" if self.given in self.answer.right else "wrong"


def summary_page(lesson: "Lesson", questions: Sequence[QuestionSummary]) -> str:
    """Return a lesson's summary as an HTML document, for a browser to print. questions: those of its steps."""
    parts = [tag("h1", lesson.title), tag("p", tag("b", say("Aim")) + f": {lesson.aim}")]
    for kind, title in SECTIONS.items():
        some = [one for one in questions if one.kind == kind]
        if some:
            parts += [tag("h2", say(title, count=len(some))), tag("ul", join(map(_item, some)))]
    if lesson.summary:
        parts += [tag("h2", say("Summary")), prose(lesson.summary, "summary")]
    return document(lesson.title, tag("main", join(parts)), (), script=(), styles=("lesson.css",))


def _item(one: QuestionSummary) -> Markup:
    step = say("Step {number}: {title}", number=one.number, title=one.title)
    lines = [tag("b", step), tag("div", one.question)]
    if one.answer and one.kind != "open":
        own = choice_text(one.answer, one.given)
        right = " / ".join(plain(one.answer.choices[number]) for number in sorted(one.answer.right))
        typed = one.answer.number is not None and one.kind == "right"
        lines += [tag("div", say("Your answer: {own}", own=own))] if own and one.kind != "told" and not typed else []
        lines += [tag("div", say("The answer is: {right}", right=right))] if typed or one.kind != "right" else []
        lines.append(tag("div", plain(one.answer.why)))
    return tag("li", join(lines))
