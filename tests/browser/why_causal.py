"""The page Why causal as a reader's eyes and hands have it."""

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
    """The page at its address, once it has settled; the live training is no part of what has to settle."""

    PATH = "why_causal"
    STATE = STATE

    def press(self, name: str) -> "WhyCausal":
        """A button, of the live training for example."""
        self.page.get_by_role("button", name=name, exact=False).first.click()
        return self

    def pick(self, name: str, group: int = 0) -> None:
        """One option of a segmented control, of the first that offers it."""
        self.page.get_by_role("radio", name=name, exact=True).nth(group).click()

    def curve(self) -> list[list[float]]:
        """The losses of each curve of the live training; none where there is no chart yet."""
        found = self.page.locator(".st-key-live_figure .js-plotly-plot")
        if not found.count():
            return []
        return found.first.evaluate("chart => (chart._fullData ?? []).map(trace => Array.from(trace.y))")

    def points(self) -> int:
        """How many points its first curve has, 0 while the chart is being drawn anew."""
        return max(map(len, self.curve()[:1]), default=0)

    def status(self) -> str:
        """The line over the curve: what the training does, and its step."""
        line = self.page.locator(".st-key-live_status")
        return line.inner_text() if line.count() else ""

    def step(self) -> int:
        """How far the training says that it is."""
        found = re.search(r"step (\d+) of", self.status())
        return int(found[1]) if found else 0
