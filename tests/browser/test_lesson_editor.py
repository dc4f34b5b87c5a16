"""Tests of the lesson editor in a browser: typed text, its mistakes, and the draft that a tab keeps."""

import random
import re
from pathlib import Path
from string import ascii_letters

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.test_classroom import Open, accessible
from tests.browser.test_classroom import class_server as class_server
from tests.browser.test_classroom import open_page as open_page
from ui.lessons.shelves import packed

pytestmark = pytest.mark.slow  # starts a server


def test_mistakes_are_said_while_one_types_and_the_step_at_the_cursor_is_shown(open_page: Open) -> None:
    page = open_page("lessons?edit=true", viewport={"width": 1280, "height": 800})
    source, problems = page.locator(".lesson_editor textarea"), page.locator(".lesson_editor .problems")
    expect(problems).to_have_text("2 steps run, no mistakes.")
    written = source.input_value()
    source.fill(written.replace("query: 4", "query: 99", 1))
    expect(problems).to_have_text("line 12: expected a query from 0 to 18, got 99")
    assert page.locator(".lesson_editor .wrong").all_inner_texts() == ["12"]
    problems.locator("button").click()
    assert selected(source) == "query: 99"
    page.keyboard.type("query: 5")
    expect(problems).to_have_text("2 steps run, no mistakes.")
    expect(page.locator(".st-key-lesson_preview h4").first).to_have_text("Your first step")
    source.press("Control+End")
    expect(page.locator(".st-key-lesson_preview h4").first).to_have_text("Another mask")
    assert accessible(page) == []
    with page.expect_download() as saved:
        page.locator(".lesson_editor .save").click()
    assert saved.value.suggested_filename == "write_a_lesson.en.md"
    assert Path(saved.value.path()).read_text(encoding="utf-8") == written.replace("query: 4", "query: 5", 1)


def test_a_draft_too_long_for_a_link_outlives_a_reload_and_gives_way_to_a_link(open_page: Open) -> None:
    page = open_page("lessons?edit=true")
    source, problems = page.locator(".lesson_editor textarea"), page.locator(".lesson_editor .problems")
    expect(problems).to_have_text("2 steps run, no mistakes.")
    short, draw = source.input_value(), random.Random(0)
    words = [" ".join("".join(draw.choices(ascii_letters, k=7)) for _ in range(500)) for _ in range(4)]
    long = short + "".join(f"\n## Step {number}\n\n```run\n```\n\n{one}\n" for number, one in enumerate(words, 3))
    source.fill(long)
    expect(problems).to_have_text("6 steps run, no mistakes.")
    expect(page).not_to_have_url(re.compile("packed="))  # written at the end of the run
    page.reload()
    expect(problems).to_have_count(1)  # while the page is redrawn there may be two
    expect(source).to_have_value(long)
    expect(problems).to_have_text("6 steps run, no mistakes.")
    page.goto(f"{page.url.split('?')[0]}?edit=true&packed={packed(short)}")
    expect(source).to_have_value(short)


def test_what_was_just_typed_is_in_the_file_the_lesson_that_is_opened_and_after_a_reload(open_page: Open) -> None:
    page = open_page("lessons?edit=true")
    source, problems = page.locator(".lesson_editor textarea"), page.locator(".lesson_editor .problems")
    expect(problems).to_have_text("2 steps run, no mistakes.")
    source.press("Control+End")
    source.press_sequentially("\nJust")
    with page.expect_download() as saved:
        source.press("Control+s")
    assert Path(saved.value.path()).read_text(encoding="utf-8").endswith("\nJust")
    source.press_sequentially(" typed.")
    page.locator(".st-key-lesson_use button").click()
    expect(page.get_by_text("Another mask")).to_be_visible()
    expect(page.get_by_text("Just typed.")).to_be_visible()
    page.go_back()
    expect(source).to_have_value(re.compile("Just typed\\.$"))
    source.press("Control+End")
    source.press_sequentially(" And more")
    page.reload()
    expect(source).to_have_value(re.compile("And more$"))


def test_what_is_written_goes_on_after_the_editor_is_closed_and_after_a_reload(open_page: Open) -> None:
    page = open_page("lessons?edit=true")
    source = page.locator(".lesson_editor textarea")
    source.press("Control+End")
    source.press_sequentially("\nMine.")
    for again in (False, True):
        page.locator(".st-key-lesson_close button").first.click()
        expect(source).to_have_count(0)
        if again:
            expect(page).not_to_have_url(re.compile("edit=true"))  # the address follows the page by some milliseconds
            page.reload()
        page.get_by_text("Your own lesson").first.click()
        page.locator(".st-key-lesson_editor button").click()
        expect(source).to_have_value(re.compile("Mine\\.$"))
    page.goto(f"{page.url.split('?')[0]}?lesson=padding")  # a new session, which does not have the draft
    page.get_by_text("Your own lesson").first.click()
    page.locator(".st-key-lesson_editor button").click()
    expect(source).to_have_value(re.compile("^---\ntitle: Padding"))
    page.get_by_role("combobox", name="Begin with").fill("Your")
    page.get_by_role("option", name="Your text").click()
    expect(source).to_have_value(re.compile("Mine\\.$"))


def selected(area: Locator) -> str:
    text: str = area.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)")
    return text
