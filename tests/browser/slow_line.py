"""A slow line between a page and its server. What a tab's server says can be held back: NEW_READER in tabs.py."""

from playwright.sync_api import Page

REST = 200  # ms without a message after which an answer counts as whole, and that a page may take to show one
ANSWERED = """async rest => {
  const before = held.answers.at(-1) ?? 0;
  for (let seen = -1; held.length === before || seen !== held.length;) {
    seen = held.length;
    await new Promise((done) => setTimeout(done, rest));
  }
  held.answers.push(held.length);
}"""
LATE = """() => {
  while (held.heard < (held.answers.at(-2) ?? 0)) held[held.heard++]();
}"""
DELIVER = """() => {
  const late = held;
  window.held = null;
  for (const deliver of late.slice(late.heard)) deliver();
}"""


class SlowLine:
    """While it lasts, the page hears of what its server answers only late; then all of it."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def __enter__(self) -> "SlowLine":
        self._page.evaluate("window.held = Object.assign([], {answers: [], heard: 0})")
        return self

    def wait(self) -> None:
        """Until the server has answered all that it was told, of which the page hears the answer before the last."""
        self._page.evaluate(ANSWERED, REST)
        self._page.evaluate(LATE)
        self._page.wait_for_timeout(REST)

    def __exit__(self, *_: object) -> None:
        self._page.evaluate(DELIVER)
