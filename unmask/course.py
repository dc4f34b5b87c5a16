"""`unmask course`: every lesson is run once, for its answers, and written as pages that run it again in the browser."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from i18n import LANGUAGES, say, spoken
from lessons.answer import mean_losses
from lessons.image_steps import encoded, rendered_scene
from lessons.lesson import ComparedStep, Lesson, Step, in_file
from lessons.picture_data import picture_data
from lessons.questions import ABOUT_A_QUERY, BEFORE_ANSWER, Answer, answer
from lessons.reading import FOLDER, ListedLesson, shelf
from model import catalog
from model.base import Model, TokenizedText, tokenize
from model.errors import CheckpointError
from model.gpt2 import MAX_TOKENS_IN_BROWSER, browser_model
from model.heads.vectors import RunScores, four_token_steps, run_scores
from model.heads.view import head_name, head_view
from model.trace import Trace
from serving.loaded_models import PAGE_MODELS
from unmask.report_request import check_on_this_machine
from viz.components import packed
from viz.hatch import data_uri, hatch_png
from viz.head import head_range, with_shared_labels
from viz.heads.cells import changed, difference_packet, picture_packet
from viz.lessons import pictures
from viz.lessons.phone import losses_table
from viz.lessons.pictures import image_and_words, lit_picture, scene_image
from viz.lessons.screen import row_tokens, run_names
from viz.saved.course import CourseStep, course_files, index_page, lesson_page, run_titles
from viz.saved.live import header, written
from viz.sentence import comparable

Series = tuple[tuple[int, RunScores], ...]  # (step, scores) of each checkpoint of the induction model
Scene = dict[str, Any]  # what components/course.js draws, or a run in it


def course(
    own: Path | None, *, download: bool = False, made: Callable[[int, int, str], None] = lambda *_: None
) -> dict[str, bytes]:
    """The files of a course, by their paths: the lessons that ship, and those of a folder of one's own.

    download: models that are not on this machine. made: is told how many lessons are done, of how many, and the path of
    the last one's page. Raises OSError, and ValueError with the file and line of every error in a lesson.
    """
    models, pages, wrong = CourseModels(download), dict[str, str](), dict[str, str]()
    shelves = {language: _shelves(own, language) for language in LANGUAGES}
    lessons = {
        language: {one.name: one.lesson for one in (*shipped, *others) if one.lesson}
        for language, (shipped, others) in shelves.items()
    }
    todo = [(language, one) for language, (_, others) in shelves.items() for one in others]
    own_count = len(todo)  # first, because they may have errors
    todo += [(language, one) for language, (shipped, _) in shelves.items() for one in shipped]
    for number, (language, one) in enumerate(todo, 1):
        if wrong and number > own_count:
            break
        taken = {"index", *(one.name for one in shelves[language][0])}
        if one.lesson is None or (number <= own_count and one.name in taken):
            taken_name = f"{one.file}: expected another name than a page of the course"
            wrong.setdefault(one.file, one.problem or taken_name)
            continue
        path = f"{language}/{one.name}.html"
        with spoken(language):
            try:
                pages[path] = lesson_page(one.name, one.lesson, models.steps(one.lesson), lessons[language])
            except ValueError as error:
                wrong.setdefault(one.file, in_file(one.file, error))
                continue
        made(number, len(todo), path)
    if wrong:
        raise ValueError("\n".join(wrong.values()))
    for language, every in lessons.items():
        with spoken(language):
            pages[f"{language}/index.html"] = index_page([*every.items()])
    return course_files({path: page.encode() for path, page in pages.items()} | models.files)


def _shelves(own: Path | None, language: str) -> tuple[list[ListedLesson], list[ListedLesson]]:
    """The lessons that ship, and those of one's own, in a language. Raises ValueError for a folder without any."""
    with spoken(language):
        shipped = shelf(FOLDER, language)
        others = shelf(own, language, [one.name for one in shipped]) if own else []
    if own and not others:
        raise ValueError(f"expected lessons, as name.en.md or name.zh.md, in {own}, found none")
    return shipped, others


@dataclass(frozen=True, eq=False)
class StepRun:
    """A run of a step. browser: what components/course.js needs to run it, None where it cannot."""

    model: Model
    trace: Trace
    browser: dict[str, Any] | None


class CourseModels:
    """The models of a course. files: those that its pages run, by their paths."""

    def __init__(self, download: bool) -> None:
        self._download = download
        self._models: dict[str, tuple[Model, str]] = {}  # by name, and the path of its file, "" for none
        self._packed: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}

    def steps(self, lesson: Lesson) -> list[CourseStep]:
        """Run the steps of a lesson. Raises ValueError with a line for each that cannot be run or asked."""
        found, wrong = list[CourseStep](), list[str]()
        for step in lesson.steps:
            try:
                found.append(self.step(step))
            except ValueError as error:
                wrong.append(str(error))
        if wrong:
            raise ValueError("\n".join(wrong))
        return found

    def step(self, step: Step) -> CourseStep:
        """Run a step. Raises ValueError, "line 7: …", for what cannot be run or asked."""
        now = self._run(step, ComparedStep(masks=step.masks), "model")
        beside = self._run(step, step.beside, "beside")
        series: Series = ()
        if step.show == "training":
            checkpoints = ((at, PAGE_MODELS[name]()) for name, at in catalog.induction_steps().items())
            runs = ((at, model.run(now.trace.batch, now.trace.spec)) for at, model in checkpoints)
            series = tuple((at, run_scores(trace, step.row - 1)) for at, trace in runs)
        found, kind = _answer(step, now, beside, series), step.ask.kind if step.ask else ""
        query = now.trace.queries.real(step.row - 1).stop - 1 if step.query is None else step.query
        queries, keys = (batch.pieces[step.row - 1] for batch in (now.trace.queries, now.trace.keys))
        marked = query if kind in ABOUT_A_QUERY else None if kind else step.query
        tokens = row_tokens(queries, marked, keys if step.attention == "cross" else ())
        if step.image:
            tokens = image_and_words(rendered_scene(step.image), queries, marked)
        drawn = _drawn(step, now, query, series)
        if drawn is None and not (now.browser and beside.browser):
            drawn = _losses(step, now.trace, beside.trace, run_names(now.model.name, beside.model.name))
        if drawn is not None:
            given = pictures.numbers(step.numbers.plain, None) if step.numbers else tokens
            return CourseStep(step, found, given, None, None, drawn=drawn)
        if not now.browser or not beside.browser:
            if kind == "picture":  # it is what the question is about
                blocked = ~now.trace.allowed(step.head[0], step.row - 1, head=step.head[1]).numpy()
                hatched = data_uri(hatch_png({"drawn": blocked}, dark=False))
                tokens = scene_image(hatched, say("Hatched cells are blocked."))
            return CourseStep(step, found, tokens, None, None, [*_pictures(step, now, beside, query)])
        titles = run_titles(now.model.name, beside.model.name)
        scenes = self._scenes(step, now.browser, beside.browser, {"query": query, "titles": titles})
        return CourseStep(step, found, tokens, *scenes)

    def _scenes(self, step: Step, now: Scene, beside: Scene, more: Scene) -> tuple[Scene | None, Scene | None]:
        """What the browser draws before the answer, and after it."""
        scene: Scene = {"now": now, "side": step.pad, "row": step.row - 1, "head": step.head, "show": step.show} | more
        both = step.show in ("pair", "losses", "texts")
        after = None if step.show == "tokens" else scene | ({"beside": beside} if both else {})
        single = "head" if step.show == "pair" else step.show
        named = more["titles"] | {"now": more["titles"]["standard"]}
        before = {
            "now": scene | {"show": "head", "unnamed": True},
            "beside": scene | {"now": beside, "show": single, "titles": named} if now != beside else None,
        }.get(BEFORE_ANSWER.get(step.ask.kind if step.ask else "", ""))
        for run in (now, beside) if both or before else (now,):
            self.files[run["model"]] = self._packed[run["model"]]
        return before, after

    def _run(self, step: Step, of: ComparedStep, setting: str) -> StepRun:
        name = of.model or step.model
        try:
            model, file = self._model(name)
        except (ValueError, OSError) as error:
            raise step.wrong(setting, error) from None
        text, image = of.text or step.text, of.image or step.image
        batch = encoded(step.wrong, model, name, image, text)
        read = TokenizedText([], batch, 0) if batch else tokenize(model, text, step.pad)
        step.check(model, name, text, read)
        masks = model.standard if of.masks is None else of.masks
        everywhere = not masks.layers and not masks.heads and masks.positions == "counted"
        fits = file and everywhere and read.batch.ids.shape[1] <= MAX_TOKENS_IN_BROWSER
        browser = {"model": file, "lines": read.rows, "masks": written(masks)} if fits else None
        try:
            return StepRun(model, model.run(read.batch, masks).select(step.attention), browser)
        except ValueError as error:
            raise step.wrong("masks" if setting == "model" else setting, error) from None

    def _model(self, name: str) -> tuple[Model, str]:
        if name not in self._models:
            if name not in PAGE_MODELS:
                check_on_this_machine(name, self._download)
            model, file = PAGE_MODELS[name]() if name in PAGE_MODELS else catalog.load(name), ""
            if Path(name).is_dir():
                model.name = Path(name).resolve().name  # the path is nobody else's business
            with suppress(CheckpointError, ValueError):
                found = browser_model(model, (0, 0))
                file = f"models/{hashlib.sha256(found.parameters).hexdigest()[:16]}.bin"
                self._packed[file] = packed(header(found), found.parameters)
            self._models[name] = model, file
        return self._models[name]


def _drawn(step: Step, now: StepRun, query: int, series: Series) -> Markup | None:
    """The picture of a step that is drawn once and for all; None for one that the browser draws."""
    if step.numbers is not None:
        return pictures.numbers(step.numbers.plain, four_token_steps(step.numbers.plain))
    if series:
        steps, scores = zip(*series, strict=True)
        return pictures.training(steps, scores, steps.index(catalog.induction_steps()[step.model]))
    if step.show not in pictures.DRAWN:
        return None
    try:
        data = picture_data(now.model, now.trace, step.show, step.row - 1, *step.head, query)
    except ValueError as error:
        raise step.wrong("show", error) from None
    queries, keys = (batch.pieces[step.row - 1] for batch in (now.trace.queries, now.trace.keys))
    return pictures.picture(step.show, data, queries, query, keys if step.attention == "cross" else ())


def _losses(step: Step, now: Trace, beside: Trace, names: tuple[str, str]) -> Markup | None:
    """Draw the losses of two runs if the browser cannot do one of them; None if the step shows something else."""
    if step.show == "texts":
        title = say("Mean loss of each text, in nats/token")
        return losses_table(now.batch.texts, mean_losses(now), mean_losses(beside), names, title)
    if step.show != "losses":
        return None
    one, other = (run.losses(step.row - 1).numpy() for run in (now, beside))
    return losses_table(now.batch.pieces[step.row - 1], one, other, names, say("loss, nats/token"))


def _answer(step: Step, now: StepRun, beside: StepRun, series: Series) -> Answer | None:
    if step.ask is None:
        return None
    try:
        return answer(now.model, now.trace, beside.trace, beside.model.name, step.asked(series))
    except ValueError as error:
        raise step.wrong("ask", error) from None


def _pictures(step: Step, now: StepRun, beside: StepRun, query: int) -> Iterator[tuple[str, bytes | str]]:
    """The pictures, each after its name, of a run that only the app can do."""
    row, (layer, head) = step.row - 1, step.head
    name = head_name(now.model.describe().layer_number(step.attention, layer), head)
    if step.show == "image":
        view = head_view(now.trace, row, now.trace.spec, layer, head)
        yield lit_picture(view, name, rendered_scene(step.image or ""), query)
    if step.show in ("head", "pair"):
        one, other = (head_view(run.trace, row, run.trace.spec, layer, head) for run in (now, beside))
        compared = step.show == "pair" and comparable(one, other)
        most = head_range(one, other) if compared else head_range(one)
        yield name, picture_packet(one, name=name, query=query, most=most)
        if compared:
            small: Any = {"name": name, "query": query, "small": True}
            yield run_names(now.model.name, beside.model.name)[1], picture_packet(other, most=most, **small)
            yield say("difference"), difference_packet(changed(*with_shared_labels(one, other)), **small)
