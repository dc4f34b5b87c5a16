"""Every page as anybody may meet it, in either language: by axe-core's rules (contrast, names, roles) and with nothing
cut off in both themes, and on a phone.

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
KINDS = {path: type("AnyPage", (Explore,), {"PATH": path, "STATE": STATE}) for path in PATHS}
TINTED = 1500  # ms for which what has changed is


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_cut_off_and_axe_finds_nothing_serious(visit: Visit, path: str, language: str) -> None:
    page = visit(f"lang={language}", kind=KINDS[path])
    found = []
    for look in page.looks(1280):
        page.page.wait_for_timeout(TINTED)
        found += [f"{look}: {words}" for words in page.cut_off()] + [f"{look}: sticks out"] * page.sticks_out()
        for violation in Axe().run(page.page).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                found += [f"{look}: {violation['id']}: {node['html'][:200]}" for node in violation["nodes"]]
    assert not found


@pytest.mark.parametrize("path", PATHS)
def test_on_a_phone_the_page_is_seen_and_not_the_sidebar_and_nothing_sticks_out(visit: Visit, path: str) -> None:
    page = visit(kind=KINDS[path], width=390, height=844, fresh=True)
    assert page.page.get_by_test_id("stExpandSidebarButton").is_visible()
    assert page.page.locator("h3").first.is_visible()
    main = page.page.locator("[data-testid=stMain]")
    assert main.evaluate("main => main.scrollWidth") <= main.evaluate("main => main.clientWidth")
    page.page.set_viewport_size({"width": 1920, "height": 1080})
    page.page.wait_for_timeout(TINTED)
    assert not page.sticks_out()
