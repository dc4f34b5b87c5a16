"""Tests that a user whose session is lost keeps the text and the last click, which the browser sends again."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.explore import Explore
from tests.browser.generation import Generation
from tests.browser.running import free_port, running
from tests.browser.test_pixels import Pixels
from tests.browser.why_causal import WhyCausal

TEXT = "Peter lost his red hat"
CONNECTION = """window.WebSocket = class extends WebSocket {
  constructor(...given) { super(...given); window.connection = this; }
}"""
LOSE = "() => { window.lost = window.connection; window.connection.close(); }"
CONNECTED = """() => document.querySelector("[data-testid=stApp]").dataset.testConnectionState === "CONNECTED"
  && window.connection.readyState === WebSocket.OPEN && window.connection !== window.lost"""


PORT = free_port()
FORGETS = {"HF_HUB_OFFLINE": "1", "STREAMLIT_SERVER_DISCONNECTED_SESSION_TTL": "0"}  # drop disconnected sessions


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ExitStack]]:
    """Yield the address of a server that drops disconnected sessions, and the stack whose close() ends it."""
    with ExitStack() as running_one:
        log = tmp_path_factory.mktemp("server") / "log"
        yield running_one.enter_context(running("app.py", log, PORT, **FORGETS)), running_one


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.add_init_script(CONNECTION)
    yield page
    page.close()


def test_a_click_in_a_part_that_runs_alone_counts_in_a_new_session(page: Page, forgetful: tuple) -> None:
    """The click arrives before the new session has drawn that fragment: none of its widgets is registered yet."""
    causal = WhyCausal(page, f"{forgetful[0]}/why_causal?step=2")
    heads = page.locator(".sentence")
    sentence = heads.inner_text()
    page.evaluate(LOSE)
    page.wait_for_function(CONNECTED)
    causal.pick("run with the mask")
    expect(heads).not_to_have_text(sentence)


def test_after_a_lost_session_the_page_goes_on_with_the_drawing_of_the_canvas(page: Page, forgetful: tuple) -> None:
    pixels = Pixels(page, f"{forgetful[0]}/pixels?part=finish").click("canvas", 10)
    levels = pixels.levels()
    page.evaluate(LOSE)
    page.wait_for_function(CONNECTED)
    pixels.choose("Digit", "4")  # settles once the server has answered the drawing on the canvas
    np.testing.assert_array_equal(pixels.levels(), levels)
    expect(page.get_by_role("button", name="Use this real digit")).to_be_enabled()


def test_a_generated_text_that_is_lost_with_its_session_is_said_to_start_over(page: Page, forgetful: tuple) -> None:
    generation = Generation(page, f"{forgetful[0]}/generation").press("step").press("step")
    note = page.get_by_text("The server no longer has this session: text generated in it starts over from the prompt.")
    assert (len(generation.written()), note.count()) == (2, 0)
    page.evaluate(LOSE)
    page.wait_for_function(CONNECTED)
    generation.press("step")
    assert (len(generation.written()), note.count()) == (1, 1)
    generation.press("step")
    assert (len(generation.written()), note.count()) == (2, 0)


def test_after_a_lost_session_text_and_click_count(page: Page, forgetful: tuple, tmp_path: Path) -> None:
    """The session is lost first by expiry (server.disconnectedSessionTTL), then with the server."""
    address, first = forgetful
    explore = Explore(page, address)
    box = page.get_by_label("Text, one sequence per line")
    box.fill(TEXT)
    explore.after(lambda: box.press("Control+Enter"))
    sentence = page.locator(".sentence").inner_text()
    explore.toggle("Causal")
    page.evaluate(LOSE)
    _click_and_expect(explore, sentence)
    explore.toggle("Causal")
    page.evaluate("() => { window.lost = window.connection; }")
    first.close()
    with running("app.py", tmp_path / "second", PORT, **FORGETS):
        _click_and_expect(explore, sentence)


def _click_and_expect(explore: Explore, sentence: str) -> None:
    """Switch Causal on again, and check that the text and the sentence are as before it was off."""
    page = explore.page
    page.wait_for_function(CONNECTED)
    explore.toggle("Causal")
    expect(page.locator(".sentence")).to_have_text(sentence)
    assert page.get_by_label("Text, one sequence per line").input_value() == TEXT
    expect(page.get_by_role("switch", name="Causal", exact=True)).to_be_checked()
    expect(page).not_to_have_url(re.compile("causal"))  # written at the end of the run
