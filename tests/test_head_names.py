"""Tests of the names of heads: written by one function, with the network's own layer number, wherever it appears."""

import json
import re
from pathlib import Path

import pytest

import unmask
from lessons.questions import QuestionSubject, answer
from model import catalog
from model.heads.view import head_name
from tests.model.huggingface.test_families import LAYERS, saved
from tests.pages.explore import Explore
from tests.pages.test_export import Export, downloads
from tests.pages.test_lessons import Lessons
from tests.viz.packet import read
from ui.heads import overview
from ui.lessons.shelves import packed
from viz.export import data

ROOT = Path(__file__).parents[1]
FOLDERS = ("model", "mask_check", "lessons", "serving", "viz", "ui", "pages", "unmask")
TEXT = "the cat sat on a mat"
NUMBER, NAME = LAYERS["olmo_hybrid"][0][0], "L2 H1"  # its only attention layer is the last of its three layers
LESSON = """---
title: Hybrid
aim: A lesson.
minutes: 1
text: {text}
model: {model}
---

## A step

```run
head: L0 H1
show: overview
```

Prose.
"""


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved("olmo_hybrid", tmp_path_factory.mktemp("hybrid")))


def test_one_function_writes_the_name_of_a_head() -> None:
    files = [ROOT / "app.py", *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))]
    name = re.compile(r"\bL\{(?!\})|[\"'>]L\{\}|\} H\{")
    found = [file for file in files if name.search(file.read_text(encoding="utf-8"))]
    assert [str(file.relative_to(ROOT)) for file in found] == ["model/heads/view.py"]
    assert (head_name(3, 2), head_name(3), head_name(NUMBER, 1)) == ("L3 H2", "L3", NAME)


def test_a_head_of_a_hybrid_in_a_notebook(hybrid: str) -> None:
    run = unmask.load(hybrid).run(TEXT)
    pictures = run.head(0, 1), run.tokens(0, 1), run.arcs(0, 1)
    assert [one.name for one in pictures] == [NAME] * 3
    assert run.leak().names[0][1] == NAME
    assert run.leak().to_dataframe()["layer"].tolist() == [NUMBER] * 2 * run.trace.num_heads
    assert f": {head_name(NUMBER)} H" in repr(run.difference(run.under({"causal": False})))


def test_a_head_of_a_hybrid_in_a_lesson(hybrid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = catalog.load(hybrid)
    trace = model.run(model.encode([TEXT]))
    found = answer(model, trace, trace, model.name, QuestionSubject("habit", 0, 0, 1))
    assert found.why.values["head"] == NAME
    packets: list[bytes] = []
    monkeypatch.setattr(overview, "_component", lambda data, **_: packets.append(data))
    Lessons(packed=packed(LESSON.format(model=hybrid, text=TEXT)))
    assert read(packets[-1])[0]["numbers"] == [NUMBER]
    page = Lessons(packed=packed(LESSON.format(model=hybrid, text=TEXT).replace("L0 H1", NAME)))
    assert "from 0 to 0 (2 in the network), got 2" in page.app.error[0].value
    page = Lessons(packed=packed(LESSON.format(model=hybrid, text=TEXT).replace("show: overview", "show: head")))
    assert NAME in page.shown()


def test_a_head_of_a_hybrid_in_explore(hybrid: str) -> None:
    page = Explore(model=hybrid, text=TEXT, layer="0", head="1")
    assert NAME in page.app.markdown[0].value


def test_a_head_of_a_hybrid_in_an_export(hybrid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    page = Export(model=hybrid, text=TEXT, layer="0", head="1")
    assert NAME in page.app.markdown[0].value
    page.set(section="Numbers")
    about = data.read(taken["NPZ"]()).about
    assert about.name(0, 1) == NAME
    assert json.loads(about.model_dump_json())["layer_numbers"] == [NUMBER]
