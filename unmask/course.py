"""`unmask course`: every lesson is run once, for its answers, and written as pages that run it again in the browser."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from i18n import LANGUAGES, say, spoken
from lessons.lesson import ComparedStep, Lesson, Step
from lessons.questions import BEFORE, MODELS, Answer, QuestionSubject, answer
from lessons.shelf import FOLDER, Shelved, shelf
from model import catalog
from model.base import Model, tokenize
from model.errors import CheckpointError
from model.gpt2 import MOST_TOKENS_IN_BROWSER, browser_model
from model.heads.survey import survey
from model.heads.view import head_name, head_view
from model.trace import Trace
from serving.loaded_models import OF_PAGES
from unmask.report_request import check_on_this_machine
from viz.components.words import packed
from viz.heads.picture import changed, difference_packet, picture_packet
from viz.overview import overview_packet
from viz.saved.course import CourseStep, course_files, front_page, index_page, lesson_page
from viz.saved.live import header, written

ABOUT_A_QUERY = ("looks", "sees", "next", "row")


def course(own: Sequence[Path], *, download: bool = False) -> dict[str, bytes]:
    """The files of a course, by their paths: the lessons that ship, and those of files and folders of one's own.

    download: models that are not on this machine. Raises ValueError and OSError with a sentence, which names the file
    and the line of a lesson that has an error.
    """
    models, pages = CourseModels(download), {"index.html": front_page()}
    for language in LANGUAGES:
        with spoken(language):
            found = _lessons(own, language)
            titles = {one.name: lesson.title for one, lesson in found}
            for one, lesson in reversed(found):  # one's own first: they are those that may be wrong
                try:
                    steps = [models.step(step) for step in lesson.steps]
                except ValueError as error:
                    raise ValueError(f"{one.file}, {error}") from None
                pages[f"{language}/{one.name}.html"] = lesson_page(one.name, lesson, steps, titles.get(lesson.next, ""))
            pages[f"{language}/index.html"] = index_page([(one.name, lesson) for one, lesson in found])
    return course_files({path: page.encode() for path, page in pages.items()} | models.files)


def _lessons(own: Sequence[Path], language: str) -> list[tuple[Shelved, Lesson]]:
    """Raises ValueError for one that cannot be read, and for one of one's own that has the name of one that ships."""
    found = shelf(FOLDER, language)
    names = [one.name for one in found]
    found += shelf(own[0], language, names, more=own[1:]) if own else []
    for one in found[len(names) :]:
        if one.problem or one.name in names:
            raise ValueError(one.problem or f"{one.file}: expected another name than those of the lessons that ship")
    return [(one, one.lesson) for one in found if one.lesson]


@dataclass(frozen=True, eq=False)
class StepRun:
    """A run of a step. file: of the model, in the course; "" where pages cannot run it."""

    model: Model
    trace: Trace
    lines: list[str]
    file: str

    def in_browser(self) -> dict[str, Any] | None:
        """What components/course.js needs to run it; None where it cannot."""
        masks, tokens = self.trace.spec, self.trace.batch.ids.shape[1]
        if (
            not self.file
            or masks.layers
            or masks.heads
            or masks.positions != "counted"
            or tokens > MOST_TOKENS_IN_BROWSER
        ):
            return None
        return {"model": self.file, "lines": self.lines, "masks": written(masks)}


class CourseModels:
    """The models of a course. files: those that its pages run, by their paths."""

    def __init__(self, download: bool) -> None:
        self._download = download
        self._models: dict[str, tuple[Model, str]] = {}  # by name, and the path of its file, "" for none
        self.files: dict[str, bytes] = {}

    def step(self, step: Step) -> CourseStep:
        """Runs it. Raises ValueError, "line 7: …", for what cannot be run or asked."""
        now = self._run(step, ComparedStep(masks=step.masks), "model")
        beside = self._run(step, step.beside, "beside")
        runs = now.in_browser(), beside.in_browser()
        query = now.trace.queries.real(step.row - 1).stop - 1 if step.query is None else step.query
        names = [say(MODELS.get(run.model.name, "{name}"), name=run.model.name) for run in (now, beside)]
        titles = (say("this run"), say("compared with")) if names[0] == names[1] else (names[0], names[1])
        run = None
        if all(runs) and (step.show != "pair" or now.model.num_heads == beside.model.num_heads):
            run = {
                "now": runs[0],
                "beside": runs[1],
                "side": step.pad,
                "row": step.row - 1,
                "head": step.head,
                "query": query,
            }
        kind = step.ask.kind if step.ask else ""
        before = BEFORE.get(kind, "")
        if before == "beside" and runs[0] == runs[1]:
            before = ""
        marked = query if step.ask and kind in ABOUT_A_QUERY else step.query
        queries, keys = (batch.pieces[step.row - 1] for batch in (now.trace.queries, now.trace.keys))
        tokens = (queries, marked if step.ask else step.query, keys if step.attention == "cross" else ())
        pictures = [] if run else list(_pictures(step, now, beside, query))
        return CourseStep(step, tokens, _answer(step, now, beside), names[0], before, titles, run, pictures)

    def _run(self, step: Step, of: ComparedStep, setting: str) -> StepRun:
        name, text = of.model or step.model, of.text or step.text
        try:
            model, file = self._model(name)
        except (ValueError, OSError) as error:
            raise step.wrong(setting, error) from None
        found = tokenize(model, text, step.pad)
        step.check(model, name, found.batch)
        spec = model.standard if of.masks is None else of.masks
        return StepRun(model, model.run(found.batch, spec).select(step.attention), found.rows, file)

    def _model(self, name: str) -> tuple[Model, str]:
        if name not in self._models:
            if name not in OF_PAGES:
                check_on_this_machine(name, self._download)
            model, file = OF_PAGES[name]() if name in OF_PAGES else catalog.load(name), ""
            if Path(name).is_dir():
                model.name = Path(name).resolve().name  # the path is nobody else's business
            with suppress(CheckpointError):
                found = browser_model(model, (0, 0))
                file = f"models/{len(self.files)}.bin"
                self.files[file] = packed(header(found), found.parameters)
            self._models[name] = model, file
        return self._models[name]


def _answer(step: Step, now: StepRun, beside: StepRun) -> Answer | None:
    if step.ask is None:
        return None
    asked = QuestionSubject(step.ask.kind, step.row - 1, *step.head, step.query, step.ask.among)
    try:
        return answer(now.model, now.trace, beside.trace, beside.model.name, asked)
    except ValueError as error:
        raise step.wrong("ask", error) from None


def _pictures(step: Step, now: StepRun, beside: StepRun, query: int) -> Iterator[tuple[str, str, bytes]]:
    """Of a run that only the app can do."""
    row, (layer, head) = step.row - 1, step.head
    name = head_name(now.model.describe().layer_number(step.attention, layer), head)
    if step.show == "overview":
        found = survey(now.trace, row)
        yield (
            "",
            "overview",
            overview_packet(found.thumbnails, found.blocked, layer=layer, head=head, measures=found.shares),
        )
    elif step.show in ("head", "pair"):
        one, other = (head_view(run.trace, row, run.trace.spec, layer, head) for run in (now, beside))
        yield name, "heatmap", picture_packet(one, name=name, query=query)
        if step.show == "pair" and (one.queries, one.keys) == (other.queries, other.keys):
            yield say("compared with"), "heatmap", picture_packet(other, name=name, query=query, small=True)
            yield (
                say("difference"),
                "heatmap",
                difference_packet(changed(one, other), name=name, query=query, small=True),
            )
