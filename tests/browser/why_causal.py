"""Page object of Why causal: what a user sees and does on the page."""

import re

from tests.browser.explore import Explore

STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const charts = [...document.querySelectorAll('.chart:not(.st-key-live_figure *)')].map((one) => one._fullData);
  const there = charts.length || document.querySelector('.four, .st-key-live_start');
  if (app?.dataset.testScriptState !== 'notRunning' || !there || charts.includes(undefined)) return null;
  const text = (query) => [...document.querySelectorAll(query)].map((element) => element.innerText).join('|');
  return JSON.stringify([
    charts.flat().map((trace) => [trace.z, trace.y]), text('.sentence'), text('.four'), text('table.copies'),
    text('.st-key-why_steps [aria-checked=true]'),
  ]);
}"""


class WhyCausal(Explore):
    """The page Why causal, once it has settled; the live training does not have to settle."""

    PATH = "why_causal"
    STATE = STATE

    def press(self, name: str) -> "WhyCausal":
        """Press the first button whose name contains `name`, for example one of the live training."""
        self.page.get_by_role("button", name=name, exact=False).first.click()
        return self

    def pick(self, name: str, group: int = 0) -> None:
        """Choose an option of a segmented control; `group` counts the controls that offer it, from 0."""
        self.page.get_by_role("radio", name=name, exact=True).nth(group).click()

    def curve(self) -> list[list[float]]:
        """Return the losses of each curve of the live training; an empty list if there is no chart yet."""
        found = self.page.locator(".st-key-live_figure .js-plotly-plot")
        if not found.count():
            return []
        return found.first.evaluate("chart => (chart._fullData ?? []).map(trace => Array.from(trace.y))")

    def points(self) -> int:
        """Return the number of points of the first curve, 0 while the chart is being redrawn."""
        return max(map(len, self.curve()[:1]), default=0)

    def status(self) -> str:
        """Return the line above the curve: the state of the training, and its step."""
        line = self.page.locator(".st-key-live_status")
        return line.inner_text() if line.count() else ""

    def step(self) -> int:
        """Return the training step in the status line, 0 if there is none."""
        found = re.search(r"step (\d+) of", self.status())
        return int(found[1]) if found else 0
