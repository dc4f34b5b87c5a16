"""The lessons that there are: those that ship, and a teacher's own in a folder, each in one or several languages."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from i18n import LANGUAGES, N_, say
from lessons.lesson import NAME, Lesson
from lessons.reading import MOST_BYTES, read

FOLDER = Path(__file__).parent
GALLERY = FOLDER / "gallery"  # one for each page of the app
MOST_LESSONS = 200


@dataclass(frozen=True)
class Shelved:
    """A lesson that was found. problem: why it cannot be read, with the file's name; else "". file: that name."""

    name: str
    lesson: Lesson | None
    problem: str = ""
    file: str = ""


def shelf(folder: Path, language: str, others: Iterable[str] = ()) -> list[Shelved]:
    """The lessons of a folder in a language (in another where there is none), each before the one it names as next.

    others: lessons elsewhere that may be named as next. Raises ValueError for a folder that cannot be read.
    """
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        words = N_("expected a folder of lessons at {folder}, got: {problem}")
        raise ValueError(say(words, folder=folder, problem=error.strerror)) from None
    files = _files(folder)
    names = sorted(files)[:MOST_LESSONS]
    return _in_order({name: _read(name, files[name], language, [*names, *others]) for name in names})


def written(folder: Path, name: str, language: str) -> str:
    """The source of a lesson of the folder, in a language, or in another where there is none."""
    files = _files(folder)[name]
    return (files.get(language) or next(iter(files.values()))).read_text(encoding="utf-8")


def _files(folder: Path) -> Mapping[str, dict[str, Path]]:
    """By a lesson's name and language: NAME.en.md, or NAME.md in the folder en."""
    found: dict[str, dict[str, Path]] = defaultdict(dict)
    for language in LANGUAGES:
        for within, ending in ((".", f".{language}.md"), (language, ".md")):
            for path in (folder / within).glob(f"*{ending}"):
                name = path.name.removesuffix(ending)
                if re.fullmatch(NAME, name):
                    found[name][language] = path
    return found


def _read(name: str, files: Mapping[str, Path], language: str, names: Collection[str]) -> Shelved:
    path = files.get(language) or next(iter(files.values()))
    try:
        with path.open("rb") as file:
            return Shelved(name, read(file.read(MOST_BYTES + 1), names), file=path.name)
    except OSError as error:
        return Shelved(name, None, f"{path.name}: {error.strerror}")
    except ValueError as error:
        return Shelved(name, None, say("{file}, {problem}", file=path.name, problem=error))


def _in_order(found: dict[str, Shelved]) -> list[Shelved]:
    """Those first that follow no other; after each the one that it names as next."""
    follows = {one.lesson.next for one in found.values() if one.lesson}
    order: dict[str, None] = {}
    for begin in sorted(found, key=lambda name: (name in follows, name)):
        name = begin
        while name in found and name not in order:
            order[name] = None
            lesson = found[name].lesson
            name = lesson.next if lesson else ""
    return [found[name] for name in order]
