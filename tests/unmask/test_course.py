"""Tests of unmask course: its pages, their content, what it refuses. In a browser: tests/browser/test_course.py."""

import base64
import html
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

import unmask
from i18n import LANGUAGES, spoken
from lessons.reading import FOLDER, shelf
from model.gpt2 import save_transformer
from model.transformer import Transformer, TransformerConfig
from tests.model.huggingface.families import save
from tests.viz.packet import unpacked
from unmask import course
from unmask.__main__ import main
from viz.numbers import percent

pytestmark = pytest.mark.slow  # writes the course three times

OWN = """---
title: Mine
aim: A lesson of my own.
minutes: 1
text: one two three
---

## A step

```run
{settings}
```
"""
SIZES = TransformerConfig(vocabulary=4096, context=48, layers=3, heads=2, width=24)


def count(network: Transformer) -> int:
    """Count a network's parameters, each once."""
    return sum(parameter.numel() for parameter in network.parameters())


def lesson(folder: Path, settings: str, name: str = "mine.en.md") -> Path:
    path = folder / name
    path.write_text(OWN.format(settings=settings), encoding="utf-8")
    return path


def refusal(capsys: pytest.CaptureFixture, site: Path, folder: Path) -> str:
    """Return the error message for a course that was not written."""
    assert main(["course", "-o", str(site), "--lessons", str(folder)]) == 2
    assert all(path.is_dir() for path in site.rglob("*")), "something was written"
    return str(capsys.readouterr().err)


def about(page: str) -> dict[str, Any]:
    """Return what components/course.js receives."""
    found = re.search(r'<script type="text/plain" id="about">([^<]*)<', page)
    packet = base64.b64decode(found[1])
    text = packet[4 : 4 + struct.unpack("<I", packet[:4])[0]]
    given: dict[str, Any] = json.loads(text)["course"]
    return given


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    torch.manual_seed(3)
    save_transformer(Transformer(SIZES), folder / "ours")
    words = (Path(unmask.__file__).parents[1] / "model/checkpoints/story/tokenizer.json").read_text("utf-8")
    (folder / "ours" / "tokenizer.json").write_text(words, "utf-8")
    theirs = save("llama", folder / "theirs")
    own = folder / "own"
    own.mkdir()
    lesson(own, f"model: {folder / 'ours'}\nask: looks", "mine.en.md")
    lesson(own, f"model: {folder / 'ours'}\nask: habit", "mine.zh.md")
    lesson(own, f'model: {theirs}\nshow: pair\nmasks: {{"causal": false}}', "other.en.md")
    assert main(["course", "--lessons", str(own), "-o", str(folder / "site")]) == 0
    return folder / "site"


def test_the_documentation_says_how_many_files_it_has(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.is_file() and path.stem not in ("mine", "other")]
    count = len(files) - 1  # a model is the test's own too
    assert f"site/: {count} files" in (Path(__file__).parents[2] / "docs/serving.md").read_text("utf-8")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_index_has_every_lesson_in_order(site: Path, language: str) -> None:
    page = (site / language / "index.html").read_text(encoding="utf-8")
    shipped = [(f"{one.name}.html", one.lesson.title) for one in shelf(FOLDER, language) if one.lesson]
    links = re.findall(r'<h2><a href="([^"]*)">([^<]*)</a>', page)
    assert [(name, html.unescape(title)) for name, title in links] == [
        *shipped,
        ("mine.html", "Mine"),
        ("other.html", "Mine"),
    ]
    assert re.findall(r"src=&#34;([^&]*)\?frame", page) == [name for name, _ in links]
    assert all((site / language / name).is_file() for name, _ in links)


def test_answers_are_those_of_the_models(site: Path) -> None:
    found = about((site / "en/causal_mask.html").read_text(encoding="utf-8"))["steps"]
    text = "Once upon a time there was a little girl who lived in a house by the sea."
    share = unmask.load("story").run(text, causal=False).survey.future[3, 5]
    assert all(f"{percent(float(share))} of this head" in html.unescape(one) for one in found[1]["said"])
    right = [step["right"] for step in found]
    assert right[0] != right[1], "the answers differ"
    for step in found:
        assert [bool('class="verdict right"' in one) for one in step["said"]] == [*step["right"], False]
        assert [bool('class="right"' in one) for one in step["seen"]] == [*step["right"], False]
    for name in ("mine", "causal_mask"):
        one, other = (about((site / lang / f"{name}.html").read_text("utf-8"))["steps"][0] for lang in LANGUAGES)
        assert one["said"] != other["said"], "each in its language"


def test_a_training_is_drawn_at_the_checkpoint_of_the_step(site: Path) -> None:
    page = (site / "en/induction_head.html").read_text(encoding="utf-8")
    assert re.findall(r"Step (\d+): loss", page) == ["375", "500"]


def test_models_that_pages_can_run_are_beside_them_once(site: Path) -> None:
    runs = {
        path: [step["after"] for step in about(path.read_text(encoding="utf-8"))["steps"]]
        for path in site.glob("??/*.html")
        if path.stem != "index"
    }
    files = {
        run[side]["model"]
        for found in runs.values()
        for run in found
        if run
        for side in ("now", "beside")
        if side in run
    }
    assert sorted(files) == sorted(f"models/{path.name}" for path in (site / "models").iterdir())
    assert len(files) == 6  # the story model, the twins, two of the induction model, and the test's own
    for name in ("translator", "other"):  # an encoder-decoder, and a model in another layout
        page = (site / f"en/{name}.html").read_text(encoding="utf-8")
        assert [run for run in runs[site / f"en/{name}.html"] if run] == []
        assert "This run needs the app." in page
    assert page.count('data-view="heatmap"') == 3
    packet = (site / runs[site / "en/mine.html"][0]["now"]["model"]).read_bytes()
    length = struct.unpack("<I", packet[:4])[0]
    config = json.loads(packet[4 : 4 + length])["config"]
    assert (config["layers"], config["heads"], config["width"]) == (3, 2, 24)
    assert len(zlib.decompress(packet[4 + length :])) == 2 * count(Transformer(SIZES))


def test_nothing_is_fetched_from_elsewhere_and_all_is_kept_offline(site: Path) -> None:
    files = {path.relative_to(site).as_posix(): path for path in site.rglob("*") if path.is_file()}
    worker = files.pop("sw.js").read_text(encoding="utf-8")
    known = re.match(r"const \[FILES, VERSION\] = (.*);\n", worker)
    assert json.loads(known[1])[0] == sorted(files)
    for name, path in files.items():
        if path.suffix == ".bin":
            continue
        page = path.read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[\w.]+", page)) <= {"http://www.w3.org"}, name
        assert str(site.parent) not in page, name
        if path.suffix == ".html":
            assert "default-src 'none'; script-src 'sha256-" in html.unescape(page)
            assert not re.search(r"(src|href)=\"(?!data:)[^\"]*:", page), name
    models = b"".join(path.read_bytes() for path in (site / "models").iterdir())
    assert str(site.parent).encode() not in models


def test_the_version_of_what_is_kept_changes_with_it(site: Path, tmp_path: Path) -> None:
    def version(folder: Path) -> str:
        return (folder / "sw.js").read_text(encoding="utf-8").splitlines()[0].split()[-1]

    lesson(tmp_path, "ask: sees")
    assert main(["course", "--lessons", str(tmp_path), "-o", str(tmp_path / "other")]) == 0
    assert version(tmp_path / "other") != version(site)
    for name in ("en/padding.html", "zh/causal_mask.html"):
        assert (tmp_path / "other" / name).read_bytes() == (site / name).read_bytes(), "made anew it is the same"


@pytest.mark.parametrize(
    ("settings", "line", "text"),
    [
        ("heed: L0 H0", 11, "got 'heed'"),
        ("head: L9 H0", 11, "expected a layer of story from 0 to 5, got 9"),
        ("query: 99", 11, "expected a query from 0 to"),
        ('masks: {"causal": false}\nask: texts', 12, "at least three texts"),
        ("show: head\nmodel: no such model", 12, "no such model"),
        ('show: head\nmasks: {"layers": [9]}', 12, "layers: expected numbers from 0 to 5"),
        ("beside: {text: one}\nask: {kind: how_many, within: 1}", 12, "at least three texts"),
        ("show: head\nask: texts", 12, "a run compared with itself"),
    ],
)
def test_an_error_in_a_lesson_of_one_s_own_is_said_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture, settings: str, line: int, text: str
) -> None:
    lesson(tmp_path, settings)
    words = refusal(capsys, tmp_path / "site", tmp_path)
    assert words.startswith(f"No course was written: mine.en.md, line {line}: ")
    assert text in words


def test_all_errors_of_all_lessons_are_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    first, second = lesson(tmp_path, "query: 99"), lesson(tmp_path, "heed: L0 H0", "other.en.md")
    first.write_text(first.read_text() + "\n## Again\n\n```run\nhead: L9 H0\n```\n")
    lines = refusal(capsys, tmp_path / "site", tmp_path).splitlines()
    assert [re.search(r"line (\d+)", one)[1] for one in lines] == ["11", "17", "11"]
    files = [first.name, first.name, second.name]
    assert [one.removeprefix("No course was written: ").split(",")[0] for one in lines] == files


def test_lessons_of_one_s_own_are_made_first_and_each_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lessons in both languages are made before a shipped lesson is run, so that their errors are known at once."""
    monkeypatch.setattr(course, "lesson_page", lambda name, *_: name)
    lesson(tmp_path, "ask: sees")
    wrong = lesson(tmp_path, "query: 99", "mine.zh.md")
    lesson(tmp_path, "heed: L0 H0", "other.en.md")
    lesson(tmp_path, "heed: L0 H0", "third.en.md")
    first, *lines = refusal(capsys, tmp_path / "site", tmp_path).splitlines()
    assert re.fullmatch(r"1 of \d\d: en/mine\.html", first)
    files = [re.sub(r"No course was written: |[,，].*", "", one) for one in lines]
    assert files == ["other.en.md", "third.en.md", wrong.name]


def test_a_pair_drawn_here_has_one_scale_also_where_a_token_differs(tmp_path: Path) -> None:
    """The masks apply to some layers only, which a browser does not compute."""
    beside = 'beside: {text: one two four, masks: {"causal": false, "layers": [3]}}'
    lesson(tmp_path, f'head: L3 H5\nmasks: {{"causal": false, "layers": [3]}}\n{beside}\nshow: pair')
    assert main(["course", "-o", str(tmp_path / "site"), "--lessons", str(tmp_path)]) == 0
    page = min((tmp_path / "site").glob("**/mine*.html"))
    packets = re.findall(r'id="packet\d_\d"[^>]*>([^<]+)<', page.read_text("utf-8"))
    found = [unpacked(base64.b64decode(one))[0] for one in packets]
    assert len(found) == 3
    assert found[0]["most"] == found[1]["most"] > found[2]["most"] > 0


def test_a_folder_without_lessons_is_no_course(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("# Notes")
    text = refusal(capsys, tmp_path / "site", tmp_path / "mine")
    assert "expected lessons, as name.en.md or name.zh.md" in text


def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "expected a folder of lessons" in refusal(capsys, tmp_path / "site", tmp_path / "nothing")
    for name in ("padding.en.md", "index.zh.md"):
        taken = lesson(tmp_path, "ask: sees", name)
        words = refusal(capsys, tmp_path / "site", tmp_path)
        assert words == f"No course was written: {name}: expected another name than a page of the course.\n"
        taken.unlink()
    (tmp_path / "mine.md").write_text("no lesson")
    words = refusal(capsys, tmp_path / "site", tmp_path)
    assert words.startswith("No course was written: mine.md: expected a unique name such as lesson.en.md")


@pytest.mark.parametrize("name", ["taken", "taken/en"])
def test_a_file_where_a_folder_must_be_is_told_before_a_lesson_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("a file")
    assert main(["course", "-o", str(tmp_path / "taken")]) == 2
    text = capsys.readouterr().err
    assert text.startswith("No course was written: ")
    assert len(text.splitlines()) == 1, "no lesson was run"
    assert (tmp_path / name).read_text() == "a file"


def test_languages_are_as_the_reader_s(site: Path) -> None:
    for language in LANGUAGES:
        page = (site / language / "padding.html").read_text(encoding="utf-8")
        with spoken(language):
            assert f'<html lang="{language}">' in page
        other = next(one for one in LANGUAGES if one != language)
        assert f'href="../{other}/padding.html" lang="{other}"' in page
