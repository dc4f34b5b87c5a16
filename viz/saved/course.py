"""The pages of a course: lessons that run their models in the browser, an index, and what installs them offline."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from i18n import LANGUAGES, N_, language, say, say_count
from lessons.glossary import glossary
from model.spec import MaskSpec
from viz.components import source
from viz.html import join, tag
from viz.lessons import screen
from viz.lessons.glossary import card, prose
from viz.saved.live import live_body, live_document, live_words
from viz.saved.standalone import document, inlined

if TYPE_CHECKING:
    from lessons.lesson import Lesson, Step
    from lessons.questions import Answer

SHOWN = 9  # given instead of a choice: the reader asked for the answer
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 6 6"><path fill="#3b6fa0" d="M1 1h1v1h1v1h1v1h1v1H1z"/></svg>'
)
ICONS = [{"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"}]
MANIFEST = {"name": "Unmask", "start_url": "index.html", "display": "standalone", "icons": ICONS}
HEAD = f'<link rel="icon" href="data:image/svg+xml,{quote(ICON)}"><link rel="manifest" href="../manifest.json">'
SOURCES = "worker-src 'self' blob:; connect-src 'self'; manifest-src 'self'"  # not shown
PAGE: Any = {"styles": ("lesson.css", "course.css"), "sources": SOURCES, "head": HEAD}
WORDS = {
    "place": N_("{step} of {steps}"),
    "texts": N_("Mean loss of each text, in nats/token"),
    "failed": N_("The model could not be fetched ({problem}). Open the course from a web server."),
    "present": N_("Present"),
    "exit": N_("Exit"),
    "next": N_("Next"),
    "try": N_("Change the text and the masks"),
    "back": N_("Back to the step"),
}


@dataclass(frozen=True, eq=False)
class CourseStep:
    """A step as it was computed. model: its name. tokens: HTML. before, after: what components/course.js runs and shows
    until the answer is given, and then; None for the tokens alone. pictures: (title, view, packet), instead of it, of a
    model that only the app runs."""

    step: "Step"
    answer: "Answer | None"
    model: str
    tokens: Markup
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    pictures: Sequence[tuple[str, str, bytes]] | None = None


def lesson_page(name: str, lesson: "Lesson", steps: Sequence[CourseStep], following: str) -> str:
    """name: of its file. following: the title of the lesson after it, "" for none."""
    numbered = list(enumerate(steps, 1))
    summary = (
        tag("h2", say("Summary")),
        prose(lesson.summary or lesson.aim, "summary"),
        tag("h2", say("Your answers")),
    )
    end = join((*summary, tag("ol", "", class_="seen"), tag("p", "", id="score", class_="aim")))
    last = (tag("section", end, data_step=len(steps) + 1), tag("button", "", type="button", id="try"))
    live = tag("div", join((*live_body("", MaskSpec()), tag("table", "", id="texts", class_="numbers"))), id="live")
    words = tag("div", join((*(_step(number, one) for number, one in numbered), *last)))
    shown = tag("div", join((*(_given(number, one) for number, one in numbered), live)), class_="shown")
    said = {word: say(sentence) for word, sentence in WORDS.items()}
    said["following"] = say("Next: {title}", title=following) if following else say("All lessons")
    about = {
        "steps": [_about(one) for one in steps],
        "following": f"{lesson.next if following else 'index'}.html",
        "words": said,
        "scores": [
            say_count("{right} of {count} answer correct.", "{right} of {count} answers correct.", n, right="{right}")
            for n, _ in numbered
        ],
    }
    return live_document(
        lesson.title,
        tag("main", _header(name, lesson.title) + tag("div", words + shown, class_="columns")),
        live_words() | {"head": (0, 0), "masks": {}, "course": about},
        script=("lesson.js", "install.js", "course.js"),
        **PAGE,
    )


def _header(name: str, title: str) -> Markup:
    links = (tag("a", say("All lessons"), href="index.html"), *_languages(f"{name}.html"))
    parts = [tag("p", join(links, " · "), class_="links"), tag("h1", title)]
    for key, words in (("previous", say("Previous")), ("next", ""), ("present", "")):
        button = tag("button", words, type="button", id=f"step_{key}")
        parts.append(tag("span", button, class_=f"st-key-{key}"))  # by which lesson.js finds it
    buttons = join((parts[2], tag("span", "", id="place", role="status"), *parts[3:]))
    return tag("header", tag("div", join(parts[:2])) + tag("div", buttons, class_="buttons"))


def _languages(file: str) -> Iterator[Markup]:
    """Links to the same page in the other languages."""
    for key, name in LANGUAGES.items():
        if key != language():
            yield tag("a", name, href=f"../{key}/{file}", lang=key, class_="language")


def _step(number: int, one: CourseStep) -> Markup:
    step, parts = one.step, [tag("h2", one.step.title), prose(one.step.prose, f"prose{number}")]
    if one.answer and step.ask:
        asked = [tag("p", tag("b", say(screen.ASKS[step.ask.kind])))]
        for place, choice in enumerate(one.answer.choices):
            words = join((tag("kbd", place + 1), " ", screen.plain(choice)))
            asked.append(tag("button", words, type="button", data_answer=place))
        asked.append(tag("button", say("Show the answer"), type="button", data_answer=SHOWN, class_="link"))
        parts += [tag("div", join(asked), class_="question"), tag("div", "", class_="answered said")]
    if step.notice:
        notice = prose("**" + say("What to notice.") + f"** {step.notice}", f"notice{number}")
        parts.append(tag("div", notice, class_="answered"))
    return tag("section", join(parts), data_step=number)


def _given(number: int, one: CourseStep) -> Markup:
    """What is shown of a step without running it: the row's tokens, and pictures where the browser cannot run it."""
    parts = [tag("div", one.tokens, class_="row")]
    if one.pictures is not None:
        words = N_("{model} runs only in the app. What is shown here was computed when this page was made.")
        figures, packets = Markup(), tag("p", say(words, model=one.model), class_="note")
        for place, (title, view, packet) in enumerate(one.pictures):
            name = f"packet{number}_{place}"
            drawn = tag("div", "", class_=f"view {view}", data_view=view, data_packet=name)
            figures += tag("figure", tag("figcaption", title) + drawn)
            packets += inlined(name, packet)
        pair = " pair" if len(one.pictures) > 1 else ""
        parts.append(tag("div", packets + tag("div", figures, class_=f"pictures{pair}"), class_="pictured"))
    return tag("div", join(parts), data_step=number)


def _about(one: CourseStep) -> dict[str, Any]:
    """For components/course.js: of each answer (the last one: shown unasked) what is said, at once and in the end."""
    about: dict[str, Any] = {"before": one.before, "after": one.after, "tokens": one.step.show == "tokens"}
    if one.answer and one.step.ask:
        asked, title = say(screen.ASKS[one.step.ask.kind]), one.step.title
        why, given = screen.plain(one.answer.why), [*range(len(one.answer.choices)), None]
        about["right"] = [place in one.answer.right for place in range(len(one.answer.choices))]
        about["said"] = [screen.verdict_on(one.answer, choice, asked) for choice in given]
        kinds = ["told" if choice is None else "right" if choice in one.answer.right else "wrong" for choice in given]
        about["seen"] = [screen.seen_line(kind, title, why) for kind in kinds]
        about["unanswered"] = screen.seen_line("open", title, say("Not answered yet."))
    return about


def index_page(lessons: Sequence[tuple[str, "Lesson"]]) -> str:
    """All lessons of a language, by the names of their files."""
    items, frames = (
        [],
        [
            tag(
                "p",
                say("To put a lesson into another page, copy its code and put the course's address before the name:"),
            )
        ],
    )
    for name, lesson in lessons:
        facts = [say_count("{count} minute", "{count} minutes", lesson.minutes)]
        facts += [say("Needs: {needs}", needs=lesson.needs.rstrip(".。"))] if lesson.needs else []
        title = tag("h2", tag("a", lesson.title, href=f"{name}.html"))
        items.append(tag("li", join((title, tag("p", lesson.aim), tag("p", " · ".join(facts), class_="note")))))
        frame = tag("iframe", src=f"{name}.html?frame", title=lesson.title, width="100%", height=800)
        frames.append(tag("p", tag("code", str(frame))))
    words = tag("div", join(tag("div", card(word, term)) for word, term in glossary().items()), class_="words")
    intro = say("Each lesson runs real models in this browser and asks you a question before it shows the answer. "
                "Nothing you type leaves it.")  # fmt: skip
    body = (
        tag("p", join(_languages("index.html")), class_="links"),
        tag("h1", say("Lessons")),
        tag("p", intro),
        tag("ol", join(items), class_="lessons"),
        tag("p", say("Once opened, the course also works without a network."), class_="note"),
        tag("details", tag("summary", say("In a frame")) + join(frames)),
        tag("details", tag("summary", say("Glossary")) + words),
    )
    return document(say("Lessons"), tag("main", join(body)), (), script=("install.js",), **PAGE)


def course_files(pages: Mapping[str, bytes]) -> dict[str, bytes]:
    """A whole course, with what keeps it for use without a network. pages: those of the languages, and the models."""
    links = (tag("p", tag("a", name, href=f"{key}/index.html", lang=key)) for key, name in LANGUAGES.items())
    body = tag("main", tag("h1", "Unmask") + join(links))
    front = document("Unmask", body, (), script=(), head=HEAD.replace("../", ""))
    more = {"index.html": front, "manifest.json": json.dumps(MANIFEST), "icon.svg": ICON}
    files = {**pages, **{name: text.encode() for name, text in more.items()}}
    version = hashlib.sha256(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()[:16]
    known = f"const [FILES, VERSION] = {json.dumps([sorted(files), version])};\n"
    return files | {"sw.js": (known + source("offline.js")).encode()}
