"""The pages of a course: lessons whose models run in the browser, an index, and the files for offline use."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from i18n import LANGUAGES, N_, language, say, say_count
from lessons.glossary import glossary
from model.spec import MaskSpec
from viz.components import source, words
from viz.html import join, tag
from viz.lessons import screen
from viz.lessons.glossary import card, formula, prose
from viz.lessons.pictures import scene_image
from viz.saved.live import live_body, live_document, live_words
from viz.saved.standalone import document, inlined

if TYPE_CHECKING:
    from lessons.lesson import Lesson, Step
    from lessons.questions import Answer

SHOWN = 9  # in place of a choice, if the user asked for the answer
ICON = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 6 6"><path fill="#36c" d="M1 1h1v1h1v1h1v1h1v1H1z"/></svg>'
MANIFEST = {
    "name": "Unmask",
    "start_url": "index.html",
    "display": "standalone",
    "icons": [{"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"}],
}
HEAD = f'<link rel="icon" href="data:image/svg+xml,{quote(ICON)}"><link rel="manifest" href="../manifest.json">'
SOURCES = "worker-src 'self' blob:; connect-src 'self'; manifest-src 'self'"  # not shown
PAGE: Any = {"styles": ("lesson.css", "lesson_pictures.css", "course.css"), "sources": SOURCES, "head": HEAD}
# lesson.js finds the buttons by the classes st-key-…
LESSON = Markup("""<main><header>
<div><p class="links"><a href="index.html">{all}</a> {languages}</p><h1>{title}</h1></div>
<div class="buttons"><span class="st-key-previous"><button type="button" id="step_previous">{previous}</button></span>
<span id="place" role="status"></span> <span class="st-key-next"><button type="button" id="step_next"></button></span>
<span class="st-key-present"><button type="button" id="step_present"></button></span></div>
</header><div class="columns"><div>{sections}<section data-step="{last}">
<h2>{summary}</h2>{prose}<h2>{answers}</h2><ol class="seen"></ol><p id="score"></p></section>
<button type="button" id="try"></button></div>
<div class="shown">{shown}<div id="live">{live}<table id="texts" class="numbers"></table></div></div></div></main>""")
INDEX = Markup("""<main><p class="links">{languages}</p><h1>{title}</h1><p>{intro}</p><ol class="lessons">{lessons}</ol>
<p class="note">{offline}</p><details><summary>{frame}</summary><p>{copy}</p>{frames}</details>
<details><summary>{glossary}</summary><div class="words">{words}</div></details></main>""")
COMPUTED = N_("This run needs the app. What is shown here was computed when this page was made.")
NOTES = {  # notes by a step's `show`
    "numbers": N_("In the app these numbers can be changed."),
    "training": N_("In the app a slider goes through the steps, and shows the head at each."),
    "texts": COMPUTED,
    "losses": COMPUTED,
}


@dataclass(frozen=True, eq=False)
class CourseStep:
    """A computed step. tokens: HTML. before, after: what components/course.js runs and shows before and after the
    question is answered; None to show the tokens alone. pictures: titles, and packets of heatmaps or URIs of images, to
    show instead if the run needs the app. drawn: a static picture."""

    step: "Step"
    answer: "Answer | None"
    tokens: Markup
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    pictures: Sequence[tuple[str, bytes | str]] | None = None
    drawn: Markup | None = None


def lesson_page(name: str, lesson: "Lesson", steps: Sequence[CourseStep], lessons: Mapping[str, "Lesson"]) -> str:
    """Return the HTML document of a lesson. name: its file's, without a suffix. lessons: all lessons by these names."""
    after = lessons.get(lesson.next)
    numbered = list(enumerate(steps, 1))
    body = LESSON.format(
        all=say("All lessons"), languages=_languages(f"{name}.html"), title=lesson.title, previous=say("Previous"),
        sections=join(_step(number, one) for number, one in numbered), last=len(steps) + 1, summary=say("Summary"),
        prose=prose(lesson.summary or lesson.aim, "summary", app=False), answers=say("Your answers"),
        shown=join(_static_html(number, one) for number, one in numbered), live=join(live_body("", MaskSpec())),
    )  # fmt: skip
    texts = words("course")
    texts["following"] = say("Next: {title}", title=after.title) if after else say("All lessons")
    about = {"steps": [*map(_about, steps)], "words": texts, "scores": screen.scores(len(steps))}
    about["following"] = f"{lesson.next if after else 'index'}.html"
    data = live_words() | {"head": (0, 0), "masks": {}, "course": about}
    scripts = ("calls.js", "shortcuts.js", "lesson.js", "install.js", "course.js")
    return live_document(lesson.title, body, data, script=scripts, **PAGE)


def run_titles(now: str, compared: str) -> dict[str, str]:
    """Return titles that name a run and the one that it is compared with. now, compared: their models' names."""
    one, other = screen.run_names(now, compared)
    means = say("Mean loss in nats/token: {now} ({one}), {standard} ({other}).", one=one, other=other, now="{now}",
                standard="{standard}")  # fmt: skip
    return {"now": one, "standard": other, "difference": say("difference"), "both_means": means}


def _languages(file: str) -> Markup:
    """Return links to the same page in the other languages."""
    others = [(key, name) for key, name in LANGUAGES.items() if key != language()]
    return join(tag("a", name, href=f"../{key}/{file}", lang=key, class_="language") for key, name in others)


def _step(number: int, one: CourseStep) -> Markup:
    step, parts = one.step, [tag("h2", one.step.title), prose(one.step.prose, f"prose{number}", app=False)]
    parts += [formula(step.formula)] if step.formula else []
    if one.answer and step.ask:
        question = [tag("p", tag("b", screen.question(step.ask)))]
        for index, choice in enumerate(one.answer.choices):
            label = join((tag("kbd", index + 1), " ", screen.plain(choice)))
            question.append(tag("button", label, type="button", data_answer=index))
        shown = join((tag("kbd", "A"), " ", say("Show the answer")))
        question.append(tag("button", shown, type="button", data_answer=SHOWN, class_="link"))
        parts += [tag("div", join(question), class_="question"), tag("div", class_="answered said")]  # not shown
    if step.notice:
        notice = prose("**" + say("What to notice.") + f"** {step.notice}", f"notice{number}", app=False)
        parts.append(tag("div", notice, class_="answered"))
    return tag("section", join(parts), data_step=number)


def _static_html(number: int, one: CourseStep) -> Markup:
    """Return the HTML of a step before it runs: the row's tokens, and pictures if the browser cannot run it."""
    parts = [tag("div", one.tokens, class_="row")]
    if one.pictures is not None:
        figures, packets = Markup(), tag("p", say(COMPUTED), class_="note")
        for index, (title, packet) in enumerate(one.pictures):
            if isinstance(packet, str):
                figures += tag("figure", tag("figcaption", title) + scene_image(packet, title))
                continue
            name = f"packet{number}_{index}"
            drawn = tag("div", "", class_="view heatmap", data_view="heatmap", data_packet=name)  # not shown
            figures += tag("figure", tag("figcaption", title) + drawn)
            packets += inlined(name, packet)
        pair = " pair" if len(one.pictures) > 1 else ""
        parts.append(tag("div", packets + tag("div", figures, class_=f"pictures{pair}"), class_="pictured"))
    if one.drawn is not None:
        note = tag("p", say(NOTES[one.step.show]), class_="note") if one.step.show in NOTES else ""
        parts.append(tag("div", one.drawn + note, class_="pictured drawn"))  # not shown
    return tag("div", join(parts), data_step=number)


def _about(one: CourseStep) -> dict[str, Any]:
    """Return a step's data for components/course.js: the reply and the summary's line for each choice and for none."""
    about: dict[str, Any] = {"before": one.before, "after": one.after, "tokens": one.step.show == "tokens"}
    if one.answer and one.step.ask:
        question, title = screen.question(one.step.ask), one.step.title
        why, given = screen.plain(one.answer.why), [*range(len(one.answer.choices)), None]
        about["right"] = [choice in one.answer.right for choice in range(len(one.answer.choices))]
        about["said"] = [screen.verdict_on(one.answer.offered(), choice, question) for choice in given]
        kinds = ["told" if choice is None else "right" if choice in one.answer.right else "wrong" for choice in given]
        about["seen"] = [screen.seen_line(kind, title, why) for kind in kinds]
        about["unanswered"] = screen.seen_line("open", title, say("Not answered yet."))
    return about


def index_page(lessons: Sequence[tuple[str, "Lesson"]]) -> str:
    """Return the index page of one language's lessons, given with the names of their files."""
    items, frames = Markup(), Markup()
    for name, lesson in lessons:
        facts = [say_count("{count} minute", "{count} minutes", lesson.minutes)]
        facts += [say("Needs: {needs}", needs=lesson.needs.rstrip(".。"))] if lesson.needs else []
        title = tag("h2", tag("a", lesson.title, href=f"{name}.html"))
        items += tag("li", title + tag("p", lesson.aim) + tag("p", " · ".join(facts), class_="note"))
        frame = tag("iframe", src=f"{name}.html?frame", title=lesson.title, width="100%", height=800)
        frames += tag("p", tag("code", str(frame)))
    intro = say("Each lesson runs real models in this browser and asks you a question before it shows the answer. "
                "Nothing you type leaves it.")  # fmt: skip
    body = INDEX.format(
        languages=_languages("index.html"), title=say("Lessons"), intro=intro, lessons=items, frame=say("In a frame"),
        offline=say("Once opened, the course also works without a network."), frames=frames, glossary=say("Glossary"),
        copy=say("To put a lesson into another page, copy its code and put the course's address before the name:"),
        words=join(tag("div", card(word, term)) for word, term in glossary().items()),
    )  # fmt: skip
    return document(say("Lessons"), body, (), script=("install.js",), **PAGE)


def course_files(pages: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return all files of a course, those for offline use included. pages: all languages' pages and models, by path."""
    links = (tag("p", tag("a", name, href=f"{key}/index.html", lang=key)) for key, name in LANGUAGES.items())
    body = tag("main", tag("h1", "Unmask") + join(links))
    front = document("Unmask", body, (), script=(), head=HEAD.replace("../", ""))
    more = {"index.html": front, "manifest.json": json.dumps(MANIFEST), "icon.svg": ICON}
    files = {**pages, **{name: text.encode() for name, text in more.items()}}
    version = hashlib.sha256(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()[:16]
    known = f"const [FILES, VERSION] = {json.dumps([sorted(files), version])};\n"
    return files | {"sw.js": (known + source("offline.js")).encode()}
