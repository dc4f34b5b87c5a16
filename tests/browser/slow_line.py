"""A simulated slow connection, which holds back the server's messages to a tab by way of NEW_READER in tabs.py."""

from playwright.sync_api import Page

REST = 200  # ms without a message after which an answer is complete; also the time for a page to show an answer
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
    """Context in which the page receives its server's answers late; on exit it receives all that are left."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def __enter__(self) -> "SlowLine":
        self._page.evaluate("window.held = Object.assign([], {answers: [], heard: 0})")
        return self

    def wait(self) -> None:
        """Wait until the server has answered the last message; deliver to the page all answers but the last."""
        self._page.evaluate(ANSWERED, REST)
        self._page.evaluate(LATE)
        self._page.wait_for_timeout(REST)

    def __exit__(self, *_: object) -> None:
        self._page.evaluate(DELIVER)
