"""Reading lessons from files: what a lesson contains, and the line that is reported for each mistake."""

import os
from pathlib import Path

import pytest
import yaml

from i18n import LANGUAGES, spoken
from lessons.reading import FOLDER, MAX_BYTES, read, shelf
from model.masks import MaskSpec

LESSON = """---
title: Windows
aim: See a window.
minutes: 7
text: one two three
---

## First

```run
head: L4 H1
masks: {"causal": false, "sliding": 3}
query: 2
ask:
  kind: picture
  among:
    - {"sliding": 3}
    - {"sliding": 5}
```

Some *prose*.

```python
## no heading
```

## Second

```run
text: 2021-03-03
ask: loss
```
"""


def test_a_lesson_is_what_its_file_says() -> None:
    lesson = read(LESSON.encode())
    first, second = lesson.steps
    assert (lesson.title, lesson.minutes, lesson.next) == ("Windows", 7, "")
    assert (first.title, first.text, first.head, first.query) == ("First", "one two three", (4, 1), 2)
    assert first.masks == MaskSpec(causal=False, sliding=3)
    assert [masks.sliding for masks in first.ask.among] == [3, 5]
    assert first.prose == "Some *prose*.\n\n```python\n## no heading\n```"
    assert (second.text, second.head, second.masks) == ("2021-03-03", (0, 0), None)
    assert second.ask.kind == "loss"


@pytest.mark.parametrize(
    ("written", "instead", "line", "text"),
    [
        ("---\ntitle", "title", 1, "expected ---"),
        ("minutes: 7", "minutes: ten", 4, "minutes, a whole number from 1 to 240, got 'ten'"),
        ("aim: See a window.\n", "", 2, "aim, what is learned, in one line"),
        ("minutes: 7", f"minutes: 0x{'f' * 5_000}", 4, "a whole number from 1 to 240, got '0xfff"),
        ("minutes: 7", f"minutes: {'9' * 5_000}", 4, "a whole number from 1 to 240, got '999"),
        ("minutes: 7", f"minutes: 7\n? 0x{'f' * 5_000}\n: 1", 5, "expected one of title, aim, needs"),
        ('masks: {"causal": false, "sliding": 3}', f"masks: [0x{'f' * 5_000}]", 12, "got a list too large to show"),
        (
            "text: one",
            "txet: one",
            5,
            "expected one of title, aim, needs, minutes, after, next, summary, text, model, image, got 'txet'",
        ),
        ("text: one", "next: nowhere\ntext: one", 5, "expected next, one of padding, windows, got 'nowhere'"),
        ("Some *prose*", "A [head](word:haed)", 21, "a word of the glossary, one of query, key, head"),
        (
            "```run\ntext: 2021-03-03",
            "```python\ntext: 2021-03-03",
            29,
            "expected a block that begins with ```run, got '```python'",
        ),
        ("```run\ntext: 2021-03-03\nask: loss\n```\n", "", 27, "begins with ```run, got nothing there"),
        ("```run\ntext: 2021-03-03", "```\ntext: 2021-03-03", 29, "begins with ```run, got '```'"),
        ("## First", "## " + "A window " * 20, 8, "expected title, a title"),
        ("head: L4 H1", "head: 4", 11, "a head as the pages write it: L4 H0, got '4'"),
        ('"sliding": 3}\nq', '"sliding": -3}\nq', 12, "expected a whole number from 0"),
        ('{"causal": false,', '{"casual": false,', 12, "masks: expected one of block_causal, causal, "),
        ('{"causal": false,', '{"casual": false,', 12, "got 'casual'"),
        ("query: 2", "query: 2\nquery2: 3", 14, "got 'query2'"),
        ("query: 2", "show: numbers", 13, "show: `numbers` goes with show: numbers, and only with it"),
        ("query: 2", "numbers: {query: [1, 2, 3]}", 13, "numbers.query"),
        ("query: 2", "page: explore", 13, "page: expected mask_lab, the page that shows these masks, got explore"),
        ("query: 2", "page: explore?view=carried", 13, "page: expected mask_lab, the page that shows these masks"),
        ("query: 2", "page: nowhere?x=1", 13, "expected page, a page to open: explore"),
        ("query: 2", "beside: text", 13, "compared with: {text: …}, {model: …}, {masks: …} or {image: …}, got 'text'"),
        ("ask: loss", "ask: {kind: number, key: 4}", 31, "expected a key from 0 to 3, got 4"),
        ("query: 2", "formula: [1]", 13, "a formula of at most 300 characters in LaTeX, got \"['1']\""),
        ("query: 2", r"formula: \frac{1", 13, r"formula: expected a LaTeX formula, got \frac{1"),
        ("query: 2", r"formula: \frac{1}", 13, r"expected a LaTeX formula, got \frac{1}"),
        ("query: 2", "formula: x}", 13, "expected a LaTeX formula, got x}"),
        ("query: 2", "formula: '&&&'", 13, "expected a LaTeX formula, got &&&"),
        ("query: 2", r"formula: '\begin{aligned} a &= b \end{aligned} & c'", 13, "expected a LaTeX formula, got"),
        ("query: 2", "formula: 'x \\'", 13, "expected a LaTeX formula, got x \\"),
        ("query: 2", r"formula: \href{javascript:alert(1)}{x}", 13, "expected a LaTeX formula"),
        ("query: 2", r"formula: \style{color:red}{x}", 13, "expected a LaTeX formula"),
        ("kind: picture", "kind: riddle", 14, "a kind of question, one of loss, texts, lower"),
        ("  among:\n", "  amogn:\n", 16, "expected one of kind, among, key, pattern, of, within, got 'ask.amogn'"),
        ("query: 2", "query: *two", 13, "an anchor, alias or tag"),
        ("query: 2", "query: [", 15, "expected YAML"),
        ("query: 2", "query: 2\nquery: 3", 14, "found query again"),
        ("query: 2", "<<: {query: 2}", 13, "found << again"),
        ("query: 2", "query: !!python/object:os.system 1", 13, "alias or tag of YAML; put it in quotes"),
        ("text: one two three", "text: ! what", 5, "alias or tag of YAML; put it in quotes"),
        ("text: one two three", "text: the # sign", 5, "where YAML begins a comment, got 'the # sign'"),
        ("text: one two three", "text: # sign", 5, "quotes around a text with #"),
        ("query: 2", "beside: {text: the # sign\n  }", 13, "quotes around a text with #"),
        ("text: one two three", "text: 'tis nobler", 5, "quotes around a value that begins with a YAML indicator);"),
        ("aim: See a window.", "aim:", 3, "got nothing there"),
        ("ask: loss\n```", "ask: loss", 32, "expected ``` that ends the block"),
        ("## First\n", "First\n", 8, "expected `## `"),
        ("text: one two three\n", "", 10, "text, a text of at most 2,000 characters, here or at the top"),
    ],
)
def test_a_mistake_is_said_with_its_line(written: str, instead: str, line: int, text: str) -> None:
    assert LESSON.count(written) == 1
    with pytest.raises(ValueError, match=rf"^line {line}: ") as error:
        read(LESSON.replace(written, instead), ["padding", "windows"])
    assert text in str(error.value)


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\f", "\v", "\x1c"])
def test_what_no_editor_takes_for_a_line_end_moves_no_line(end: str) -> None:
    pasted = LESSON.replace("aim: See a window.", f"aim: See{end}a window.")
    assert read(pasted).aim == "See a window."
    for text, line in ((pasted, 13), (pasted.replace("## First\n", f"## First\na{end}b\n"), 14)):
        with pytest.raises(ValueError, match=rf"^line {line}: "):
            read(text.replace("query: 2", "query: !!python/object:os.system 1"))


def test_a_mistake_in_one_setting_is_one_mistake() -> None:
    pairs = "[[1, 0], [1, 0], [1, 0], [1, 0]]"
    row = f'show: numbers\nnumbers:\n  query: [1, 0]\n  keys: {pairs}\n  values: {pairs}\n  add: "5"'
    with pytest.raises(ValueError, match="expected numbers") as error:
        read(LESSON.replace("text: 2021-03-03", row))
    assert str(error.value) == """line 35: expected numbers.add, "-inf", "-1e4", "-10" or "" for nothing, got '5'"""


def test_every_file_of_a_folder_is_a_lesson_or_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    lessons = ["one.en.md", "two.zh.md", "en/three.md"]
    others = ["Upper.en.md", "en/four.en.md", "en/one.md", "plain.md"]
    for name in (*lessons, *others, "README.md", "._one.en.md", "notes.txt"):
        (tmp_path / name).write_text(LESSON, encoding="utf-8")
    found = shelf(tmp_path, "en")
    assert [one.name for one in found if one.lesson] == ["one", "three", "two"]
    left = [one for one in found if not one.lesson]
    assert all(f"{one.file}: expected a unique name such as lesson.en.md" in one.problem for one in left)
    files = {one.file.replace("\\", "/") for one in left}
    assert files in (set(others), {*others, "one.en.md"} - {"en/one.md"})  # either of the two with one name


def test_a_mistake_in_masks_is_said_in_the_user_s_language() -> None:
    with spoken("zh"), pytest.raises(ValueError, match="masks: sliding：应为“0（关闭）到 1000000 的整数”"):
        read(LESSON.replace('"sliding": 3}', '"sliding": -3}'))


def test_unknown_lessons_are_named_beside_other_mistakes_of_the_front_matter() -> None:
    front = "minutes: five\nnext: nowhere\nafter: [padding, none_such, nor_this]"
    with pytest.raises(ValueError, match="minutes") as error:
        read(LESSON.replace("minutes: 7", front), ["padding", "windows"])
    mistakes = [line for line in str(error.value).splitlines() if "line 1:" not in line]
    assert [line.partition(":")[0] for line in mistakes] == ["line 4", "line 5", "line 6", "line 6"]
    assert [line.rpartition(" ")[2] for line in mistakes] == ["'five'", "'nowhere'", "'none_such'", "'nor_this'"]


def test_a_named_pipe_in_a_folder_of_lessons_is_a_mistake_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "one.en.md")
    (found,) = shelf(tmp_path, "en")
    assert (found.lesson, found.problem) == (None, "one.en.md is not a regular file")


def test_all_mistakes_are_said_at_once_in_the_order_of_their_lines() -> None:
    wrong = (
        LESSON.replace("minutes: 7", "minutes: ten").replace("head: L4 H1", "head: 4").replace("ask: loss", "ask: x")
    )
    with pytest.raises(ValueError, match=r"^line 4: ") as error:
        read(wrong.replace("Some *prose*", "[a](word:b)"))
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == [
        "line 4", "line 11", "line 21", "line 31",
    ]  # fmt: skip


def test_what_stands_before_the_first_step_hides_no_mistake_of_a_step() -> None:
    wrong = LESSON.replace("## ", "# Introduction\n\nIt begins.\n\n## ", 1).replace("head: L4 H1", "head: 4")
    with pytest.raises(ValueError, match=r"the title of the first step[^\n]*\nline \d+: expected head"):
        read(wrong)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("title: Masks: a start", "Masks: a start"),
        ("title: What is the king's answer:", "What is the king's answer:"),
        ('title: "Masks: quoted"', "Masks: quoted"),
        ("title: Windows", "Windows"),
    ],
)
def test_a_value_may_hold_a_colon(line: str, value: str) -> None:
    assert read(LESSON.replace("title: Windows", line)).title == value


@pytest.mark.parametrize(
    "value",
    ["2021", "no", "Yes", "on", "null", "~", "12:30", "0x1F", "1_000", "1e3", ".5", "-3", "=", "a#b", "007"],
)
def test_a_text_is_taken_as_it_is_written(value: str) -> None:
    lesson = read(LESSON.replace("title: Windows", f"title: {value}").replace("text: 2021-03-03", f"text: {value}"))
    assert (lesson.title, lesson.steps[1].text) == (value, value)


def test_null_is_nothing_where_no_text_is_asked_for() -> None:
    first, _ = read(LESSON.replace("query: 2", "query: null\nimage: ~\nbeside: {model: null}")).steps
    assert (first.query, first.image, first.beside.model) == (None, None, None)


def test_numbers_and_masks_stay_what_they_are_and_may_have_comments() -> None:
    _, second = read(LESSON.replace("text: 2021-03-03", ROW)).steps
    assert second.numbers is not None
    assert (second.numbers.query, second.numbers.keys[3], second.numbers.blocked) == ((1, 0.5), (1, -10), (3,))
    assert (second.numbers.add, second.numbers.sink, second.query) == ("-10", 3, 1)
    assert second.masks == MaskSpec(causal=False, sliding=2)


ROW = """show: numbers # all
query: 1 # the second
masks: {"causal": off, "sliding": 2} # wide
numbers:
  query: [1, 0.5]  # two numbers
  keys: [[1, 0], [1, 0], [1, 0], [1, -1e1]]
  values: [[1, 0], [1, 0], [1, 0], [1, 0]]
  blocked: [3]
  add: -10  # little
  sink: 3"""


def test_what_is_found_wrong_as_a_step_runs_is_said_with_the_line_of_its_setting() -> None:
    first, second = read(LESSON).steps
    assert str(first.wrong("head", "no such head")) == "line 11: no such head"
    assert str(first.wrong("ask", "no")) == "line 14: no"
    assert str(second.wrong("head", "no such head")) == "line 27: no such head"


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"---\n---\n", b"---\n" + b"[" * 7_900 + b"\n---\n## A\n"])
def test_what_is_no_lesson_is_refused_with_a_line(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^line [12]: "):
        read(data)


def test_what_is_nested_deep_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The YAML parser would take seconds for each of thirty blocks, and other users' pages would wait for it."""
    monkeypatch.setattr(yaml, "compose", None)
    with pytest.raises(ValueError, match="line 4: expected lists nested at most 8 deep, got 'more'"):
        read("---\ntitle: a\nminutes: {a: [{b: [\n{c: [{d: [{\n---\n## A\n")


def test_links_without_an_end_are_read_in_linear_time() -> None:
    """In time quadratic in the length of the line, this would take half an hour."""
    with pytest.raises(ValueError, match=r"line 7: expected .* 5,000 characters"):
        read("---\ntitle: a\naim: b\nminutes: 1\ntext: c\n---\n## A\n```run\n```\n" + "](word:" * 140_000)


def test_a_lesson_of_more_than_a_megabyte_is_not_looked_at() -> None:
    with pytest.raises(ValueError, match="at most 1,000,000 bytes, got 1,000,001"):
        read(b"-" * (MAX_BYTES + 1))


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_lessons_that_ship_are_read_each_names_the_next_and_each_asks_three_times(language: str) -> None:
    found = shelf(FOLDER, language)
    assert [one.problem for one in found] == [""] * len(found)
    lessons = [one.lesson for one in found if one.lesson]
    assert [one.next for one in lessons] == [*(one.name for one in found[1:]), ""]
    assert min(sum(step.ask is not None for step in lesson.steps) for lesson in lessons) >= 3
    assert all(step.notice for lesson in lessons for step in lesson.steps)
    names = [one.name for one in found]
    before = [set(names[:index]) for index in range(len(names))]
    assert all(set(one.after) <= seen for one, seen in zip(lessons, before, strict=True))
    assert all(5 <= len(one.steps) <= 7 for name, one in zip(names, lessons, strict=True) if name in NEW)
    sources = [(FOLDER / language / f"{name}.md").read_text(encoding="utf-8") for name in names]
    assert not any("next lesson" in source or "下一课" in source for source in sources), "which one is another's to say"


NEW = {"text_to_next_token", "mask_on_a_score", "attention_sinks", "induction_head", "serving_masks"}
