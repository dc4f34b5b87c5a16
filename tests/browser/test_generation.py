"""Tests of the Generation page in Chromium: it plays and pauses, nothing is cut off, and nothing moves meanwhile."""

from collections.abc import Callable
from urllib.parse import urlencode

import pytest

from tests.browser.generation import Generation

Open = Callable[..., Generation]
PROMPT = "Once upon a time"
WATCH_SHIFTS = """() => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const shift of list.getEntries()) {
      const moved = shift.sources.map((one) => one.node?.className || one.node?.nodeName);
      window.shifts.push({ value: shift.value, moved });
    }
  }).observe({ type: "layout-shift" });
}"""  # layout shifts as Chromium reports them, also those marked hadRecentInput, soon after a click

OUTSIDE = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const end = document.querySelector('.st-key-candidates').getBoundingClientRect().right;
  const words = document.createRange();
  const right = (element) => (words.selectNodeContents(element), words.getBoundingClientRect().right);
  return [
    ...all('p.sentence, .st-key-generation_notes [data-testid=stCaptionContainer]')
      .filter((box) => box.scrollHeight > box.clientHeight).map((box) => `${box.scrollHeight} in ${box.clientHeight}`),
    ...all('.chance :is(b, .share, .bars)').filter((part) => right(part) > end + 8).map((part) => part.innerText),
  ];
}"""  # sentences taller than their boxes, and what sticks out of the candidates' column


@pytest.fixture
def generation(visit: Callable[..., Generation]) -> Open:
    def open_page(**choices: str | int) -> Generation:
        return visit(urlencode({"text": PROMPT} | choices), kind=Generation)

    return open_page


def test_playing_adds_tokens_and_rows_until_it_is_paused(generation: Open) -> None:
    page = generation()
    rows = page.rows()
    page.play()
    page.until(lambda: len(page.written()) >= 4 and page.rows() >= rows + 4)
    page.pause()
    written = page.written()
    assert page.rows() == rows + len(written)
    page.page.wait_for_timeout(1_500)
    assert page.written() == written
    assert page.page.locator("table.differences").count() == 1, "the section is there again"
    page.play()
    page.until(lambda: len(page.written()) > len(written))
    page.pause("Space")  # the clicked button still has the focus
    assert page.written()[: len(written)] == written
    again = generation()
    for _ in range(3):
        again.press("step")
    assert again.written() == written[:3], "step by step it is the same text"


def test_nothing_is_cut_off_nor_lies_over_another(generation: Open) -> None:
    page = generation()
    page.press("step")
    parts = [".st-key-step", ".st-key-play", ".st-key-back", ".st-key-start_over", ".st-key-layer_0", ".st-key-head_0"]
    parts += [".st-key-temperature", ".st-key-cache", ".st-key-candidates", ".st-key-head_figure"]
    for look in page.looks(1280):
        assert not page.cut_off(), look
        assert not page.overlaps(parts), look
        assert page.contrast("p.writing .prompt", "color") >= 4.5, look
        assert page.contrast(".chance .share", "color") >= 4.5, look
    for look in page.looks(1120, 1024, 768, 360, 320, schemes=["light"]):
        assert page.page.evaluate(OUTSIDE) == [], look


def test_while_it_plays_the_picture_never_goes_white_and_nothing_moves(generation: Open) -> None:
    page = generation(seed=3)
    page.press("step")
    page.page.evaluate(WATCH_SHIFTS)
    page.play()
    before, colours = page.written(), []
    for _ in range(24):
        colours.append(page.colours())
        page.page.wait_for_timeout(150)
    page.pause()
    assert len(page.written()) > len(before) + 2
    assert min(colours) > 8, f"so many colours were on the picture: {colours}"
    shifts = page.page.evaluate("window.shifts.filter((one) => one.value > 0.001)")
    assert not shifts, shifts
