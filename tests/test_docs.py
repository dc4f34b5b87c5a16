"""Tests that files named in the documentation exist and that the Python calls in it work.

python -m pytest tests/test_docs.py
"""

import re
from pathlib import Path

import numpy as np
import pytest

import unmask
from lessons.reading import FOLDER, shelf
from model import catalog

ROOT = Path(__file__).parents[1]
READMES = *ROOT.glob("[!.]*/README.md"), *ROOT.glob("model/checkpoints/*/README.md")
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *ROOT.glob("*.md"), *READMES]
PATH = re.compile(r"tests(/\w+)+|[\w.-]+(/[\w.-]+)*(/|\.(py|js|css|md|yaml|toml|txt|ipynb))")
ONLY_HERE = re.compile(r"NAME|name\.|\.venv|your|my|^(en|zh)/|report\.md")  # placeholders, and a user's files


def named_files(text: str) -> set[str]:
    """Return the paths, relative to the root and with a folder, in `backticks` and in commands that run tests."""
    marked = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^    python -m pytest (.*)$", text, re.MULTILINE)
    words = {word.strip(",;:()").partition("::")[0] for some in marked for word in some.split()}
    return {word for word in words if "/" in word and PATH.fullmatch(word) and not ONLY_HERE.search(word)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not re.match(r"https?:|word:|mailto:", link)]
    assert [name for name in named_files(text) if not (ROOT / name).exists()] == []
    assert [link for link in links if not (page.parent / link).exists()] == []
    for link, anchor in re.findall(r"\]\(([^):#\s]*)#([^)\s]+)\)", text):
        assert anchor in anchors(page.parent / link if link else page), f"{link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub generates them."""
    titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def test_the_table_of_lessons_has_their_minutes_and_questions() -> None:
    rows = re.findall(r"^\| \d+ \|.*\| (\d+) \| (\d+) \|$", (ROOT / "docs/lessons.md").read_text("utf-8"), re.MULTILINE)
    lessons = [one.lesson for one in shelf(FOLDER, "en") if one.lesson]
    expected = [(one.minutes, sum(step.ask is not None for step in one.steps)) for one in lessons]
    assert [tuple(map(int, row)) for row in rows] == expected


def test_every_call_on_the_run_of_the_documentation_works() -> None:
    """Calls that need files or another model are left out."""
    text = (ROOT / "docs/notebook.md").read_text(encoding="utf-8")
    names = {"query": 9, "key": 5, "masks": {"sliding": 4}, "texts": ["The cat saw the cat."], "levels": [0] * 64}
    exec("\n".join(re.findall(r"^    (.*)", text.partition("## What")[0], re.MULTILINE)), names)
    rows = re.findall(r"^\| (`.*`) \|", text.partition("## What a run offers")[2].partition("\n## ")[0], re.MULTILINE)
    calls = re.findall(r"`((?:run|lifted|model)\..*?|unmask\.(?:cost|digit)\(.*?)`", " ".join(rows))
    calls = [call for call in calls if not re.search("image|cross|chat", call)]
    assert len(calls) > 40
    for call in calls:
        exec(call, names)
    shaped = [re.match(r"\| `((?:run|lifted|model)\.[^`]*)`.*\| \[([^]]*)\][^|]*\|$", row) for row in text.splitlines()]
    shapes = [(found[1].removesuffix(".numpy()"), found[2]) for found in shaped if found and "image" not in found[1]]
    assert len(shapes) > 20
    for call, axes in shapes:
        exec(f"numbers = {call}.numpy()", names)
        assert names["numbers"].ndim == len(axes.split(",")), call


@pytest.mark.parametrize("page", ["README.md", "docs/masks.md"])
def test_the_python_of_a_page_runs(page: str) -> None:
    lines = re.findall(
        r"^    ((?:from|import|model|run|lifted|trace|found|MaskSpec)\b.*)", (ROOT / page).read_text(), re.MULTILINE
    )
    assert len(lines) > 5
    exec("\n".join(lines), {"unmask": unmask, "catalog": catalog, "mask": np.tri(6, dtype=bool)})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_function_of_the_package_that_a_page_names_exists(page: Path) -> None:
    called = re.findall(r"(?<!await )\bunmask\.(\w+)\(", page.read_text(encoding="utf-8"))  # JavaScript's are awaited
    assert {*called} <= {*unmask.__all__}


def test_names_are_found() -> None:
    text = "`model/nothing.py` and `pages/NAME.py`, `a.b()`\n\n    python -m pytest tests/none.py tests/no/folder -x\n"
    assert named_files(text) == {"model/nothing.py", "tests/none.py", "tests/no/folder"}
