"""Page objects of Across layers, Ablation and Compare: what a user sees and does on the pages."""

from tests.browser.explore import Explore

STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const charts = [...document.querySelectorAll('.js-plotly-plot')];
  const sentence = document.querySelector('p.sentence');
  if (app?.dataset.testScriptState !== 'notRunning' || !sentence) return null;
  if (charts.some((chart) => !chart._fullData)) return null;
  const text = (query) => [...document.querySelectorAll(query)].map((element) => element.innerText).join('|');
  return JSON.stringify([
    location.search, charts.map((chart) => chart._fullData.map((trace) => [trace.z, trace.y])), text('table.lens'),
    text('table.numbers'), text('.sentence'),
  ]);
}"""


class AcrossLayers(Explore):
    """The page Across layers, once it has settled."""

    PATH = "layers"
    STATE = STATE

    def pick(self, name: str) -> "AcrossLayers":
        """Choose an option of a segmented control, and wait for the page to change."""
        self.after(lambda: self.page.get_by_role("radio", name=name, exact=True).click())
        return self

    def sentence(self) -> str:
        return self.page.locator("p.sentence").inner_text()

    def columns(self) -> list[str]:
        """Return the column titles of the lens's table."""
        return self.page.locator("table.lens tr").first.locator("th").all_inner_texts()


class HeadsOff(AcrossLayers):
    PATH = "ablation"
    STATE = STATE.replace("!sentence", "!sentence || charts.length < 1")


class AandB(AcrossLayers):
    PATH = "compare"
    STATE = STATE.replace("!sentence", "!sentence || charts.length < 2")
