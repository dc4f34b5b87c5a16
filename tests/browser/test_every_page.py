"""Every page as anybody may meet it, in either language: on a phone, and in both themes with nothing cut off and
nothing that axe-core's rules (contrast, names, roles) call serious. A page is opened once: that takes longest.

python -m pytest tests/browser/test_every_page.py
"""

from collections.abc import Callable
from pathlib import PurePath

import pytest
from axe_playwright_python.sync_playwright import Axe

from model.language import LANGUAGES
from tests.browser.explore import Explore
from ui.page import PAGES

Visit = Callable[..., Explore]
PATHS = ["" if path == "app.py" else PurePath(path).stem for path in PAGES]
STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const still = app?.dataset.testScriptState === 'notRunning' && !document.querySelector('[data-testid=stSpinner]');
  const charts = [...document.querySelectorAll('[data-testid=stPlotlyChart]')];
  const there = document.querySelector('h3') && charts.every((chart) => chart.querySelector('.main-svg'));
  return still && there ? document.querySelector('[data-testid=stMain]').innerText : null;
}"""
SEEN = ["color-contrast", "link-in-text-block"]  # what of axe-core's rules the theme matters for
EXPORT = {"en": "Export", "zh": "导出"}
KINDS = {path: type("AnyPage", (Explore,), {"PATH": path, "STATE": STATE}) for path in PATHS}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("path", PATHS)
def test_as_it_opens_on_a_phone_and_as_a_larger_window_shows_it(visit: Visit, path: str, language: str) -> None:
    page = visit(f"lang={language}", kind=KINDS[path], width=390, height=844)
    assert page.page.get_by_test_id("stExpandSidebarButton").is_visible()  # the sidebar starts closed
    assert page.page.locator("h3").first.is_visible()
    main = page.page.locator("[data-testid=stMain]")
    assert main.evaluate("main => main.scrollWidth") <= main.evaluate("main => main.clientWidth")
    page.page.set_viewport_size({"width": 1920, "height": 1080})
    page.page.get_by_role("link", name=EXPORT[language], exact=True).wait_for()  # it opens where there is room
    assert not page.sticks_out()
    found = []
    for look in page.looks(1280):
        found += [f"{look}: {words}" for words in page.cut_off()] + [f"{look}: sticks out"] * page.sticks_out()
        found += [f"{look}: {words}" for words in serious(page, SEEN if "dark" in look else None)]
    assert not found


def serious(page: Explore, rules: list[str] | None) -> list[str]:
    """What axe-core finds that is serious or worse: by these of its rules, or by all."""
    options: dict = {"resultTypes": ["violations"]}  # of all that is well it would send every element
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    violations = Axe().run(page.page, options=options).response["violations"]
    return [
        f"{violation['id']}: {node['html'][:200]}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
