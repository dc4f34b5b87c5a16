"""The pages of a course: lessons that run their model in the browser, an index, and what installs them offline."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from i18n import LANGUAGES, N_, language, say, say_count
from lessons.glossary import glossary
from model.spec import MaskSpec
from viz.components import source
from viz.html import join, tag
from viz.lessons import screen
from viz.lessons.glossary import card, prose
from viz.palette import SEQUENTIAL
from viz.saved.live import live_body, live_document, live_words
from viz.saved.standalone import document, inlined

if TYPE_CHECKING:
    from lessons.lesson import Lesson, Step
    from lessons.questions import Answer

SHOWN = 9  # given instead of a choice: the reader asked for the answer
SOURCES = "connect-src 'self'; manifest-src 'self'"  # not shown
FETCHED = f"worker-src 'self'; {SOURCES}"  # not shown
WORDS = {
    "place": N_("{step} of {steps}"),
    "open": N_("Not answered yet."),
    "texts": N_("Mean loss of each text, in nats/token"),
    "failed": N_("The model could not be fetched ({problem}). Open the course from a web server."),
}


@dataclass(frozen=True, eq=False)
class CourseStep:
    """A step as it was computed. tokens: of its row, which of them is
    marked, and in cross-attention the keys. run: what components/course.js runs, None where only the app
    can; then pictures: (title, view, packet) of what it shows. model: its name. before: what is shown until the answer
    is given, as questions.BEFORE. titles: of the run, and of what it is compared with."""

    step: "Step"
    tokens: tuple[Sequence[str], int | None, Sequence[str]]
    answer: "Answer | None"
    model: str
    before: str
    titles: tuple[str, str]
    run: dict[str, Any] | None
    pictures: Sequence[tuple[str, str, bytes]] = ()


def lesson_page(name: str, lesson: "Lesson", steps: Sequence[CourseStep], following: str) -> str:
    """name: of its file. following: the title of the lesson after it, "" for none."""
    last = len(steps) + 1
    after = say("Next: {title}", title=following) if following else say("All lessons")
    words = [*(_step(number, one) for number, one in enumerate(steps, 1)), _end(last, lesson)]
    given = [_given(number, one) for number, one in enumerate(steps, 1)]
    texts = tag("table", "", id="texts", class_="numbers")
    other = tag("button", "", type="button", id="try", hidden="")
    live = tag("div", join((*live_body("", MaskSpec()), texts)), id="live")
    columns = (tag("div", join((*words, other))), tag("div", join((*given, live)), class_="shown"))
    scores = [
        say_count("{right} of {count} answer correct.", "{right} of {count} answers correct.", count, right="{right}")
        for count in range(1, last)
    ]
    about = {
        "name": name,
        "steps": [_about(one) for one in steps],
        "following": f"{lesson.next if following else 'index'}.html",
        "scores": scores,
        "words": {word: say(sentence) for word, sentence in WORDS.items()}
        | {"present": say("Present"), "exit": say("Exit"), "next": say("Next"), "following": after},
        "try": [say("Change the text and the masks"), say("Back to the step")],
    }
    return live_document(
        lesson.title,
        tag("main", join((_navigation(name, lesson.title), tag("div", join(columns), class_="columns")))),
        live_words() | {"head": (0, 0), "masks": {}, "course": about},
        script=("lesson.js", "install.js", "course.js"),
        styles=("lesson.css", "course.css"),
        sources=f"'self'; {SOURCES}",
        head=_head("../"),
    )


def _navigation(name: str, title: str) -> Markup:
    def button(key: str, words: str) -> Markup:
        return tag(
            "span", tag("button", words, type="button", id=f"step_{key}"), class_=f"st-key-{key}"
        )  # of lesson.js

    buttons = (
        button("previous", say("Previous")),
        tag("span", "", id="place", role="status"),
        button("next", say("Next")),
        button("present", say("Present")),
    )
    links = (tag("a", say("All lessons"), href="index.html"), " · ", *_languages(f"{name}.html"))
    top = (tag("p", join(links), class_="links"), tag("h1", title))
    return tag("header", tag("div", join(top)) + tag("div", join(buttons), class_="buttons"))


def _languages(file: str) -> Iterator[Markup]:
    """Links to the same page in the other languages."""
    for key, name in LANGUAGES.items():
        if key != language():
            yield tag("a", name, href=f"../{key}/{file}", lang=key, data_same="")


def _step(number: int, one: CourseStep) -> Markup:
    step, parts = one.step, [tag("h2", one.step.title), prose(one.step.prose, f"prose{number}")]
    if one.answer and step.ask:
        asked = [tag("p", tag("b", say(screen.ASKS[step.ask.kind])))]
        for place, choice in enumerate(one.answer.choices):
            words = join((tag("kbd", place + 1), " ", screen.plain(choice)))
            asked.append(tag("button", words, type="button", data_answer=place))
        asked.append(tag("button", say("Show the answer"), type="button", data_answer=SHOWN, class_="link"))
        parts += [tag("div", join(asked), class_="question"), tag("div", "", class_="answered", hidden="")]
    if step.notice:
        notice = prose("**" + say("What to notice.") + f"** {step.notice}", f"notice{number}")
        parts.append(tag("div", notice, class_="notice"))
    return tag("section", join(parts), data_step=number, hidden="")


def _end(number: int, lesson: "Lesson") -> Markup:
    summary = (tag("h2", say("Summary")), prose(lesson.summary or lesson.aim, "summary"))
    answers = (tag("h2", say("Your answers")), tag("ol", "", class_="seen"), tag("p", "", id="score", class_="aim"))
    return tag("section", join((*summary, *answers)), data_step=number, hidden="")


def _given(number: int, one: CourseStep) -> Markup:
    """What is shown of a step without running it: the row's tokens, and pictures where the browser cannot run it."""
    queries, marked, keys = one.tokens
    rows = [screen.tokens(queries, marked)]
    if keys:
        titles = (say("Keys: the tokens of the source"), say("Queries: the tokens of the output"))
        rows = [tag("p", titles[0]), screen.tokens(keys, None), tag("p", titles[1]), *rows]
    parts = [tag("div", join(rows), class_="row", hidden="")]
    if one.run is None:
        words = N_("{model} runs only in the app. What is shown here was computed when this page was made.")
        note, pictures, packets = tag("p", say(words, model=one.model), class_="note"), list[Markup](), list[Markup]()
        for place, (title, view, packet) in enumerate(one.pictures):
            packet_name = f"packet{number}_{place}"
            drawn = tag("div", "", class_=f"view {view}", data_view=view, data_packet=packet_name)
            pictures.append(tag("figure", tag("figcaption", title) + drawn))
            packets.append(inlined(packet_name, packet))
        figures = tag("div", join(pictures), class_="pictures" + (" pair" if len(pictures) > 1 else ""))
        parts.append(tag("div", join((note, figures, *packets)), class_="pictured", hidden=""))
    return tag("div", join(parts), data_of=number, hidden="")


def _about(one: CourseStep) -> dict[str, Any]:
    """Of a step what components/course.js needs."""
    step, answer = one.step, one.answer
    about: dict[str, Any] = {"title": step.title, "show": step.show, "before": one.before, "run": one.run}
    now, standard = one.titles
    about["titles"] = {"now": now, "standard": standard, "difference": say("difference")} | {
        "both_means": say("Mean loss in nats/token: {now} ({one}), {standard} ({other}).", now="{now}", one=now,
                          standard="{standard}", other=standard)}  # fmt: skip
    if answer and step.ask:
        asked = say(screen.ASKS[step.ask.kind])
        given = [screen.verdict_on(answer, choice, asked) for choice in range(len(answer.choices))]
        about |= {"verdicts": given, "told": screen.verdict_on(answer, None, asked), "right": sorted(answer.right)}
        about["why"] = screen.plain(answer.why)
    return about


def index_page(lessons: Sequence[tuple[str, "Lesson"]]) -> str:
    """All lessons of a language, by the names of their files."""
    links = (tag("p", join(_languages("index.html")), class_="links"), tag("h1", say("Lessons")))
    intro = say("Each lesson runs real models in this browser and asks you a question before it shows the answer. "
                "Nothing you type leaves it.")  # fmt: skip
    items = []
    for name, lesson in lessons:
        facts = [say_count("{count} minute", "{count} minutes", lesson.minutes)]
        facts += [say("Needs: {needs}", needs=lesson.needs.rstrip(".。"))] if lesson.needs else []
        title = tag("h2", tag("a", lesson.title, href=f"{name}.html"))
        items.append(tag("li", join((title, tag("p", lesson.aim), tag("p", " · ".join(facts), class_="note")))))
    framed = say("To put a lesson into another page, copy its code there:")
    codes = [tag("p", tag("code", "", data_frame=f"{name}.html", title=lesson.title)) for name, lesson in lessons]
    words = tag("div", join(tag("div", card(word, term)) for word, term in glossary().items()), class_="words")
    frame = tag("summary", say("In a frame")) + tag("p", framed) + join(codes)
    more = (tag("details", frame), tag("details", tag("summary", say("Glossary")) + words))
    offline = tag("p", say("Once opened, the course also works without a network."), class_="note", id="offline")
    body = (*links, tag("p", intro), tag("ol", join(items), class_="lessons"), offline, *more)
    return _plain_page(say("Lessons"), tag("main", join(body)), "../", ("install.js", "course_index.js"))


def front_page() -> str:
    """Opened first: it goes on to the reader's language."""
    links = (tag("p", tag("a", name, href=f"{key}/index.html", lang=key)) for key, name in LANGUAGES.items())
    return _plain_page("Unmask", tag("main", tag("h1", "Unmask") + join(links)), "", ("course_front.js",))


def _plain_page(title: str, body: Markup, root: str, script: Sequence[str]) -> str:
    styles = ("lesson.css", "course.css")
    return document(title, body, (), script=script, styles=styles, sources=FETCHED, head=_head(root))


def _icon() -> bytes:
    """SVG: the triangle of a head under the causal mask."""
    sizes = {"width": 11, "height": 11}
    cells = (
        tag("rect", x=8 + 12 * key, y=8 + 12 * query, fill=SEQUENTIAL[1 + 2 * ((query + key) % 5)], **sizes)
        for query in range(4)
        for key in range(query + 1)
    )
    return tag("svg", join(cells), xmlns="http://www.w3.org/2000/svg", viewBox="0 0 64 64").encode()


def _head(root: str) -> Markup:
    """root: the course's folder, from the page."""
    icon = f"data:image/svg+xml;base64,{base64.b64encode(_icon()).decode()}"
    return Markup('<link rel="manifest" href="{}manifest.json"><link rel="icon" href="{}">').format(root, icon)


def course_files(pages: Mapping[str, bytes]) -> dict[str, bytes]:
    """A course's files besides its pages and models, which the service worker keeps for use without a network."""
    manifest = {
        "name": "Unmask",
        "start_url": "index.html",
        "display": "standalone",
        "icons": [{"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"}],
    }
    files = {**pages, "manifest.json": json.dumps(manifest).encode(), "icon.svg": _icon()}
    version = hashlib.sha256(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()[:16]
    known = f"const [FILES, VERSION] = {json.dumps([sorted(files), version])};\n"
    return files | {"sw.js": (known + source("offline.js")).encode()}
