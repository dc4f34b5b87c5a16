"""The Lessons page: it asks before it shows, says what the run says, and takes a teacher's own lesson.

python -m pytest tests/pages/test_lessons.py
"""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from model import catalog
from ui.lessons.shelves import packed, unpacked

ROOT = Path(__file__).parents[2]
OWN = """---
title: Mine
aim: A lesson of my own.
minutes: 1
text: one two three
---

## A <b>step</b>

```run
query: 2
ask: sees
```

Some <script>alert(1)</script> prose.
"""


class Lessons:
    """One reader's page; every run has to end without an exception."""

    def __init__(self, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        self.app.switch_page("pages/lessons.py")
        self.app.query_params.update(query)
        self.run()

    def run(self) -> "Lessons":
        self.app.run()
        assert not self.app.exception, self.app.exception[0].stack_trace
        return self

    def press(self, key: str) -> "Lessons":
        self.app.button(key=key).click()
        return self.run()

    def choices(self) -> list[str]:
        return [button.label for button in self.app.button if str(button.key).startswith("answer_")]

    def verdict(self) -> str:
        found = [one.proto.body for one in self.app.get("html") if 'class="verdict' in one.proto.body]
        return re.sub("<.*?>", " ", found[0]).strip() if found else ""

    def text(self) -> str:
        return "".join(one.proto.body for one in self.app.get("html"))

    def has_picture(self) -> bool:
        return bool(self.app.get("plotly_chart"))


def test_what_is_asked_is_shown_once_it_is_answered_and_stays_answered() -> None:
    page = Lessons(lesson="causal_mask")
    assert len(page.choices()) == 4
    assert not page.has_picture()
    page.press("answer_0")
    assert page.verdict().startswith("Not this one. Right is: 9")
    assert page.has_picture()
    page.press("next").press("previous")
    assert page.verdict().startswith("Not this one.")
    assert not page.choices()


def test_a_lesson_ends_with_three_lines_of_its_runs_and_with_the_next_lesson() -> None:
    page = Lessons(lesson="why_training", step="3").press("answer_1")
    assert page.verdict().startswith("That is right.")
    said = page.verdict().rpartition("  ")[2]
    page.press("next").press("next")
    lines = re.findall(r"<li>(.*?)</li>", page.text())
    assert len(lines) == 3
    assert any(line.endswith(said) for line in lines)
    assert "You predicted 1 of 1 right." in page.text()
    page.press("next")
    assert page.app.query_params["lesson"] == "translator"


def test_the_losses_of_two_models_bear_their_names_and_of_one_model_twice_which_run_it_is() -> None:
    for step, names in (("1", {"The twin trained without the mask", "The twin trained with the mask"}),
                        ("3", {"this run", "compared with"})):  # fmt: skip
        page = Lessons(lesson="why_training", step=step).press("answer_0")
        (chart,) = page.app.get("plotly_chart")
        assert {curve["name"] for curve in json.loads(chart.proto.spec)["data"]} == names


def test_asking_can_be_switched_off_and_the_language_changed() -> None:
    page = Lessons(lesson="padding", step="2", lang="zh")
    assert page.choices() == ["因果掩码 + 填充掩码", "因果掩码", "填充掩码", "没有掩码"]
    page.app.toggle(key="lesson_asks").set_value(False)
    assert page.run().verdict().startswith("正确答案：因果掩码")


def test_a_lesson_in_the_link_is_read_and_shown_as_text() -> None:
    page = Lessons(packed=packed(OWN))
    assert r"#### A \<b\>step\</b\>" in [one.value for one in page.app.markdown]
    assert "<script>alert" not in page.text()
    assert "&lt;script&gt;" in page.text()
    assert page.choices() == ["2", "3", "4"]
    page.app.query_params.clear()
    page.app.query_params["lesson"] = "padding"  # as the sidebar's link does
    assert "#### Rows of one length" in [one.value for one in page.run().app.markdown]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"lesson": "no_such"}, "There is no lesson of the name “no_such” here"),
        ({"packed": "AAAA"}, "expected a whole lesson in the link"),
        ({"packed": packed(OWN.replace("minutes: 1", "minutes: x"))}, "line 4: expected minutes"),
        ({"packed": packed(OWN.replace("query: 2", "head: L9 H0"))}, "expected a layer of story from 0 to 5, got 9"),
        ({"packed": packed(OWN.replace("query: 2", "row: 2"))}, "expected a row from 1 to 1, got 2"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(query: dict[str, str], said: str) -> None:
    page = Lessons(**query)
    (error,) = [box.value.replace("\\", "") for box in page.app.error]
    assert said in error


def test_a_link_holds_a_whole_lesson_and_no_bomb() -> None:
    assert unpacked(packed(OWN)) == OWN
    assert packed("".join(chr(0x4E00 + place) for place in range(9_000))) == ""
    bomb = packed("a" * 1_000_001)
    assert bomb
    with pytest.raises(ValueError, match="a whole lesson"):
        unpacked(bomb)


def test_a_folder_of_lessons_comes_after_those_that_ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.en.md").write_text(OWN, encoding="utf-8")
    (tmp_path / "wrong.en.md").write_text("---\ntitle: x", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no lesson", encoding="utf-8")
    monkeypatch.setenv("UNMASK_LESSONS", str(tmp_path))
    page = Lessons()
    titles = [one.value for one in page.app.markdown if one.value.startswith("#### ")]
    assert len(titles) == 7
    assert titles[6] == "#### 7 · Mine"
    assert ["wrong.en.md, line 2: expected a second ---" in box.value for box in page.app.warning] == [True]
    page.press("open_mine")
    assert page.choices() == ["2", "3", "4"]


def test_a_lesson_asks_before_it_downloads_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(name: str, *_: object) -> Path:
        fetched.append(name)
        raise OSError("the test has no files")

    monkeypatch.setattr(catalog, "fetch", fetch)
    monkeypatch.setattr(catalog, "download_size", lambda *_: 548 * 10**6)
    page = Lessons(packed=packed(OWN.replace("query: 2", "query: 2\nmodel: some/other")))
    assert not fetched
    assert "some/other is not on this machine: 548 MB would be downloaded" in page.app.info[0].value
    page.press("download_another")
    assert fetched == ["some/other"]
    assert page.app.error[0].value == "the test has no files."


def test_a_lesson_downloads_nothing_that_the_disk_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "download_size", lambda *_: 548 * 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    page = Lessons(packed=packed(OWN.replace("query: 2", "query: 2\nmodel: some/other")))
    assert "0.5 GB to download, and the disk has 1.0 GB free" in page.app.error[0].value
