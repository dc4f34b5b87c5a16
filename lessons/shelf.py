"""The lessons that there are: those that ship, and a teacher's own in a folder, each in one or several languages."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from i18n import LANGUAGES, say
from lessons.lesson import Lesson
from lessons.reading import MOST_BYTES, read

FOLDER = Path(__file__).parent
FILE = re.compile(r"([a-z0-9_]{1,60})\.(en|zh)\.md")
MOST_FILES = 200


@dataclass(frozen=True)
class Shelved:
    """A lesson that was found. problem: why it cannot be read, with the file's name; else ""."""

    name: str
    lesson: Lesson | None
    problem: str = ""


def shelf(folder: Path, language: str, others: Iterable[str] = ()) -> list[Shelved]:
    """The lessons of a folder in a language (in another where there is none), each before the one it names as next.

    others: lessons elsewhere that may be named as next. Raises ValueError for a folder that cannot be read.
    """
    try:
        files = [path for path in sorted(folder.iterdir()) if FILE.fullmatch(path.name)][:MOST_FILES]
    except OSError as error:
        raise ValueError(
            say("expected a folder of lessons at {folder}, got: {problem}", folder=folder, problem=error.strerror)
        ) from None
    names = {FILE.fullmatch(path.name)[1]: None for path in files}  # type: ignore[index]  # it matched above
    found = [_read(folder, name, language, [*names, *others]) for name in names]
    return [one for one in _in_order({each.name: each for each in found}) if one.lesson or one.problem]


def _read(folder: Path, name: str, language: str, names: Collection[str]) -> Shelved:
    paths = [folder / f"{name}.{one}.md" for one in (language, *LANGUAGES)]
    path = next(path for path in paths if path.exists())
    try:
        with path.open("rb") as file:
            return Shelved(name, read(file.read(MOST_BYTES + 1), names))
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
