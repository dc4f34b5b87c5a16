"""The parser of lessons: Markdown with front matter, a `## ` heading for each step and in it a fenced block `run`; and
the lists of lessons, those that ship and a teacher's own.

Lessons are untrusted. Nothing in them is executed, sizes are bounded before anything is parsed, and all errors are one
ValueError, which gives for each its line and what was expected there.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from i18n import LANGUAGES, N_, Message, listed, msg, say
from lessons.glossary import glossary
from lessons.lesson import MAX_STEPS, NAME, Ask, ComparedStep, FourTokenRow, FrontMatter, Lesson, Step, in_file
from model.files import read_regular

FOLDER, GALLERY = Path(__file__).parent, Path(__file__).parent / "gallery"  # GALLERY: one for each page
NO_LINE_ENDS = re.compile("[\v\f\x1c-\x1e\x85\u2028\u2029]")  # line ends to Python and YAML, but in no editor
MAX_LESSONS = 200
MAX_BYTES = 1_000_000  # most bytes of a lesson
MAX_SETTINGS = 8_000  # characters of its front matter, and of a step's block
DEEPEST = 8  # levels of nested brackets in YAML: its parser takes seconds for thousands
SHARED = ("text", "model", "image")  # what the front matter may set for all steps
TEXTS = ("title", "aim", "needs", "summary", "text", "formula", "notice")  # free texts, in which a # begins no comment
STRING, NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"
PARTS: dict[str, type[BaseModel]] = {"ask": Ask, "beside": ComparedStep, "numbers": FourTokenRow}  # that have settings
MAX_MISTAKES = 20  # the most reported at once
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*(\w*)")
SETTING = re.compile(r"(\w+):( |$)")
WITH_COLON = re.compile(r"(\w+): ([^\s\"'\[{|>&*!#].*(?:: .*|:))")  # a plain value that YAML takes for a mapping
WORD = re.compile(r"\]\(word:([^()]{0,80})\)")  # bounded: a line may hold a million of them that never end

Read = TypeVar("Read", bound=BaseModel)
Made = TypeVar("Made")


@dataclass
class Section:
    """The source of a step. line, settings_line: where it and its block begin in the file, from 1."""

    title: str
    line: int
    prose: list[str] = field(default_factory=list)
    settings: list[str] | None = None
    settings_line: int = 0
    other: tuple[int, str] = 0, msg("nothing there")  # line and beginning of a block with settings that is not `run`


class Mistakes(ValueError):
    """The errors in a lesson: sentences for its author, each with its line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems[:MAX_MISTAKES]))
        self.problems = problems


def read(data: str | bytes, names: Collection[str] | None = None) -> Lesson:
    """Read a lesson from its file. Raises Mistakes, "line 7: expected …, got …" for each, for anything else.

    names: the names of all lessons, for `next` and `after`; None if they are not known.
    """
    lines, wrong = NO_LINE_ENDS.sub(" ", _text(data)).splitlines(), list[str]()

    def attempt(make: Callable[[], Made]) -> Made | None:
        try:
            return make()
        except Mistakes as error:
            wrong.extend(error.problems)
            return None

    if not lines or lines[0].strip() != "---":
        raise _wrong(1, say("--- and then the lesson's title, aim and minutes"), (lines or [msg("an empty file")])[0])
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        raise _wrong(len(lines), say("a second --- that ends the front matter"), msg("the end of the file"))
    front = attempt(lambda: _front(lines[1:end], names, wrong))
    sections = attempt(lambda: _sections(lines[end + 1 :], end + 2, wrong)) or []
    if not sections and not wrong:
        raise _wrong(len(lines), say("`## ` and the title of the first step"), msg("the end of the file"))
    common = front.model_dump(include=set(SHARED), exclude_none=True) if front else {"text": "-"}
    given = {"model": front._lines["model"]} if front and front.model else {}
    steps = [attempt(partial(_step, section, common, given)) for section in sections]
    if wrong or front is None:
        raise Mistakes(*sorted(wrong, key=lambda one: int(re.findall(r"\d+", f"{one} 0")[0])))
    return Lesson(**front.model_dump(), steps=tuple(step for step in steps if step))


def _front(lines: list[str], names: Collection[str] | None, wrong: list[str]) -> FrontMatter:
    settings = _settings(lines, 2)
    for key in ("next", "after"):
        given = settings.values.get(key)
        for name in given if isinstance(given, list) else [given]:
            if names is not None and isinstance(name, str) and re.fullmatch(NAME, name) and name not in names:
                words = say("{key}, one of {names}", key=key, names=", ".join(names))
                wrong += _wrong(settings.line_of((key,)), words, name).problems
    front = _checked(FrontMatter, settings, {})
    front._lines = {name: settings.line_of((name,)) for name in settings.values}
    return front


def _text(data: str | bytes) -> str:
    size = len(data if isinstance(data, bytes) else data.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise ValueError(say("expected a lesson of at most {most:,} bytes, got {size:,}", most=MAX_BYTES, size=size))
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _wrong(line, say("text in UTF-8"), msg("the byte {byte}", byte=f"{data[error.start]:#04x}")) from None


def _unknown_words(number: int, line: str) -> list[str]:
    unknown = [word for word in WORD.findall(line) if word not in glossary()]
    expected = say("a word of the glossary, one of {words}", words=", ".join(glossary())) if unknown else ""
    return [str(_wrong(number, expected, f"word:{word}")) for word in unknown]


def _sections(lines: list[str], first: int, wrong: list[str]) -> list[Section]:
    """Split lines into steps. first: the number of the first line in the file. wrong: collects skippable errors."""
    found: list[Section] = []
    inside: list[str] | None = None  # the block `run` that is open
    closing, opened = "", (0, "")  # what ends the fence that is open; its line and beginning
    early = next((number for number, line in enumerate(lines, first) if line.strip()), 0)
    for number, line in enumerate(lines, first):
        fence = FENCE.match(line)
        if not closing or inside is not None:
            wrong += _unknown_words(number, line)
        if closing:
            if fence and fence[1].startswith(closing) and not fence[2]:
                closing = ""
                if inside is None:
                    found[-1].prose.append(line)
                inside = None
            else:
                (found[-1].prose if inside is None else inside).append(line)
                setting = SETTING.match(line) if inside is None else None
                if setting and setting[1] in Step.model_fields and not found[-1].other[0]:
                    found[-1].other = opened
        elif line.startswith("## "):
            if len(found) == MAX_STEPS:
                raise _wrong(number, say("at most {most} steps", most=MAX_STEPS), msg("one more"))
            found.append(Section(line[3:].strip(), number))
        elif not found:
            if number == early:
                wrong += _wrong(number, say("`## ` and the title of the first step"), line).problems
        elif fence:
            closing, opened = fence[1], (number, f"```{fence[2]}")
            if fence[2] != "run":
                found[-1].prose.append(line)
            elif found[-1].settings is not None:
                wrong += _wrong(number, say("one block `run` in a step"), msg("a second one")).problems
                inside = []
            else:
                inside = found[-1].settings = []
                found[-1].settings_line = number + 1
        else:
            found[-1].prose.append(line)
    if closing:
        raise _wrong(first + len(lines), say("{fence} that ends the block", fence=closing), msg("the end of the file"))
    return found


def _step(section: Section, common: dict[str, Any], given: dict[str, int]) -> Step:
    """Build a step. common: what the front matter sets for all. given: the lines of what can be wrong of that alone."""
    if section.settings is None:
        line, got = section.other
        raise _wrong(line or section.line, say("a block that begins with ```run"), got)
    settings = _settings(section.settings, section.settings_line)
    settings.heading = section.line
    written = {name: settings.line_of((name,)) for name in settings.values}
    settings.values = common | settings.values
    step = _checked(Step, settings, {"title": section.title, "prose": "\n".join(section.prose).strip()})
    step._lines = {"": section.line, **given, **written}
    return step


@dataclass
class YamlMapping:
    """A YAML mapping: its values, and their lines. first: the line of its beginning; heading: of its step's."""

    values: dict[str, Any]
    node: Node | None
    first: int
    heading: int = 0

    def line_of(self, path: tuple[int | str, ...]) -> int:
        """Return the line of the value at a path of keys, or of the nearest value on that path."""
        node, line = self.node, (self.heading if path[0] in ("title", "prose") else 0) or self.first
        for step in path:
            found = _entry(node, step)
            if found is None:
                break
            node, line = found[1], self.first + found[0].start_mark.line
        return line


def _entry(node: Node | None, step: int | str) -> tuple[Node, Node] | None:
    """Return the node where an entry begins, and that of its value."""
    if isinstance(node, MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), None)
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _settings(lines: list[str], first: int) -> YamlMapping:
    """Parse a mapping with text keys, from YAML without anchors and tags; only plain values are constructed."""
    size = sum(map(len, lines))
    if size > MAX_SETTINGS:
        raise _wrong(first, say("at most {most:,} characters of settings", most=MAX_SETTINGS), f"{size:,}")
    text = "\n".join(map(_quoted, lines))
    if not text.strip():
        return YamlMapping({}, None, first)
    depth = 0
    try:
        for token in yaml.scan(text):
            line, kind = first + token.start_mark.line, type(token).__name__
            depth += kind.endswith(("SequenceStartToken", "MappingStartToken"))
            depth -= kind.endswith(("SequenceEndToken", "MappingEndToken", "BlockEndToken"))
            if depth > DEEPEST:
                raise _wrong(line, say("lists nested at most {most} deep", most=DEEPEST), say("more"))
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken):
                raise _wrong(line, say("plain values"), msg("an anchor, alias or tag of YAML; put it in quotes"))
        node = yaml.compose(text, _Plain)
        _values_to_text(node, text, first)
        values = _Plain("").construct_document(node) if node else None
    except yaml.MarkedYAMLError as error:
        line = first + (error.problem_mark.line if error.problem_mark else 0)
        words = N_("line {line}: expected YAML (`name: value` lines, quotes around a value that begins "
                   "with a YAML indicator); {problem}")  # fmt: skip
        raise Mistakes(say(words, line=line, problem=error.problem)) from None
    except Mistakes:
        raise
    except (yaml.YAMLError, RecursionError, ValueError):
        raise _wrong(first, say("YAML: `name: value` lines"), say("what cannot be read as that")) from None
    if values is None:
        return YamlMapping({}, None, first)
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise _wrong(first, say("settings: `name: value` lines"), values)
    return YamlMapping(values, node, first)


def _values_to_text(node: Node | None, text: str, first: int) -> None:
    """Turn plain values into texts, which number fields accept too; except those of masks, and null outside TEXTS."""
    if isinstance(node, ScalarNode) and node.tag != NULL:
        node.tag = STRING
    elif isinstance(node, SequenceNode):
        for one in node.value:
            _values_to_text(one, text, first)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            _values_to_text(key, text, first)
            if key.value not in ("masks", "among"):
                _values_to_text(value, text, first)
            if key.value in TEXTS and isinstance(value, ScalarNode) and not value.style:
                rest = text[value.end_mark.index :].partition("\n")[0]
                if rest.lstrip().startswith("#"):
                    words = say("quotes around a text with #, where YAML begins a comment")
                    raise _wrong(first + value.start_mark.line, words, value.value + rest)
                value.tag = STRING if value.value else NULL


def _quoted(line: str) -> str:
    """Put the value of a setting that has a colon in it in quotes, as YAML requires."""
    found = WITH_COLON.fullmatch(line.rstrip())
    return "{}: '{}'".format(found[1], found[2].replace("'", "''")) if found else line


class _Plain(yaml.SafeLoader):
    """A YAML loader without dates: 2021-03-03 is a text. A repeated name is an error, and so is <<."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the class it derives from
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = {"<<"}
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(problem=f"found {name} again", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def _checked(kind: type[Read], settings: YamlMapping, more: dict[str, Any]) -> Read:
    try:
        return kind.model_validate(settings.values | more)
    except ValidationError as error:
        raise Mistakes(*(_problem(kind, settings, one) for one in error.errors())) from None


def _problem(kind: type[BaseModel], settings: YamlMapping, error: Any) -> str:
    """Return one of pydantic's errors as a sentence."""
    path: tuple[int | str, ...] = error["loc"] or ("show",)  # without a path, it is of the step as a whole
    name = ".".join(map(str, path))
    line = settings.line_of(path)
    model, field_name = (PARTS[path[0]], path[1]) if path[0] in PARTS and len(path) > 1 else (kind, path[0])
    if error["type"] == "extra_forbidden":
        names = [one for one in model.model_fields if one not in ("title", "prose") or model is FrontMatter]
        return str(_wrong(line, say("one of {names}", names=", ".join(names)), name))
    if error["type"] == "value_error":
        return say("line {line}: {problem}", line=line, problem=listed([name, error["ctx"]["error"]], ": "))
    field = model.model_fields.get(str(field_name))
    described = say(field.description) if field and field.description else say("something else")
    expected = say("{name}, {description}", name=name, description=described)
    got = msg("nothing there") if error["type"] == "missing" or error["input"] is None else error["input"]
    return str(_wrong(line, expected, got))


def _wrong(line: int, expected: str, got: object) -> Mistakes:
    """Return an error in a line. expected: in the user's language; got: the value that was found, or a Message."""
    try:
        text = say(got) if isinstance(got, Message) else repr(str(got).strip()[:80])
    except ValueError:  # of a number of more digits than Python writes
        text = say("a {kind} too large to show", kind=type(got).__name__)
    return Mistakes(say("line {line}: expected {expected}, got {got}", line=line, expected=expected, got=text))


@dataclass(frozen=True)
class ListedLesson:
    """A lesson that was found. problem: why it cannot be read, with the file's name; else "". file: that name."""

    name: str
    lesson: Lesson | None
    problem: str = ""
    file: str = ""


def shelf(folder: Path, language: str, others: Iterable[str] = ()) -> list[ListedLesson]:
    """Return the lessons of a folder in a language, or another if there is none, each before the one it names as next.

    others: lessons elsewhere that may be named as next. Raises ValueError for a folder that cannot be read.
    """
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        words = N_("expected a folder of lessons at {folder}, got: {problem}")
        raise ValueError(say(words, folder=folder, problem=error.strerror)) from None
    files = _files(folder)
    names = sorted(files)[:MAX_LESSONS]
    found = {name: _shelved(name, files[name], language, [*names, *others]) for name in names}
    follows = {one.lesson.next for one in found.values() if one.lesson}
    order: dict[str, None] = {}
    for begin in sorted(found, key=lambda name: (name in follows, name)):  # first those that follow no other lesson
        name = begin
        while name in found and name not in order:
            order[name] = None
            lesson = found[name].lesson
            name = lesson.next if lesson else ""
    return [*(found[name] for name in order), *_left_out(folder, files)]


def written(folder: Path, name: str, language: str) -> str:
    """Return the source of a lesson of the folder, in a language, or in another if there is none."""
    files = _files(folder)[name]
    return (files.get(language) or next(iter(files.values()))).read_text(encoding="utf-8")


def _files(folder: Path) -> Mapping[str, dict[str, Path]]:
    """Return the files by a lesson's name and language: NAME.en.md, or NAME.md in the folder en."""
    found: dict[str, dict[str, Path]] = defaultdict(dict)
    for language in LANGUAGES:
        for within, ending in ((".", f".{language}.md"), (language, ".md")):
            for path in (folder / within).glob(f"*{ending}"):
                name = path.name.removesuffix(ending)
                if re.fullmatch(NAME, name):
                    found[name][language] = path
    return found


def _left_out(folder: Path, files: Mapping[str, Mapping[str, Path]]) -> list[ListedLesson]:
    """Return the Markdown files whose names are no lesson's, without README.md, LICENSE.md and such, or hidden ones."""
    taken = {path for languages in files.values() for path in languages.values()}
    every = {path for within in (".", *LANGUAGES) for path in (folder / within).glob("[!.]*.md")}
    others = sorted(str(path.relative_to(folder)) for path in every - taken if not path.name.split(".")[0].isupper())
    words = N_("{file}: expected a unique name such as lesson.en.md or lesson.zh.md (a-z, 0-9 and _)")
    return [ListedLesson(one, None, say(words, file=one), one) for one in others[:MAX_MISTAKES]]


def _shelved(name: str, files: Mapping[str, Path], language: str, names: Collection[str]) -> ListedLesson:
    path = files.get(language) or next(iter(files.values()))
    try:
        return ListedLesson(name, read(read_regular(path, MAX_BYTES), names), file=path.name)
    except OSError as error:
        why = f"{path.name}: {error.strerror}" if error.strerror else say(error.args[0]).replace(str(path), path.name)
        return ListedLesson(name, None, why, path.name)
    except ValueError as error:
        return ListedLesson(name, None, in_file(path.name, error), path.name)
