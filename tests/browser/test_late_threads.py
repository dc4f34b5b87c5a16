"""Tests of a server so busy that a run's thread starts late: no click is lost when another message follows it."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.explore import TIMEOUT
from tests.browser.running import running

pytestmark = pytest.mark.slow  # starts a server

LATE = """import time
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests

take = ScriptRequests.on_scriptrunner_ready

def take_late(self):
    time.sleep(0.4)
    return take(self)

ScriptRequests.on_scriptrunner_ready = take_late
"""


@pytest.fixture(scope="module")
def late_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("late")
    (folder / "sitecustomize.py").write_text(LATE, encoding="utf-8")  # Python imports it at startup
    with running("serve.py", folder / "log", PYTHONPATH=str(folder), UNMASK_MODELS="story") as address:
        yield address


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    context.set_default_timeout(TIMEOUT)
    yield context.new_page()
    context.close()


def test_a_key_right_after_a_dialog_is_closed_leaves_it_closed(page: Page, late_server: str) -> None:
    page.goto(f"{late_server}/lessons?lesson=causal_mask&present=true")
    page.locator(".st-key-teach button").first.click()
    expect(page.locator("img.qr")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    expect(page.locator(".verdict")).to_contain_text("The answer is: 9")
    page.keyboard.press("ArrowRight")
    expect(page.locator("h4")).to_have_text("Turn it off")
    expect(page.locator("img.qr")).to_have_count(0)


def test_of_two_choices_in_one_view_both_are_taken(page: Page, late_server: str) -> None:
    page.goto(f"{late_server}/?{urlencode({'text': 'The cat saw a dog and the cat ran', 'query': 2})}")
    tokens = page.locator(".st-key-head_tokens .tokens > .text")
    tokens.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):  # the pin is sent at once, the query a while later
        tokens.press(key)
    page.wait_for_function("() => location.search.includes('pins=')")
    page.wait_for_function("() => location.search.includes('query=5')")
    found = parse_qs(urlsplit(page.url).query)
    assert (found["query"], found["pins"]) == (["5"], ["5"])
