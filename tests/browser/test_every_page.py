"""Every page as anybody may meet it: by axe-core's rules (contrast, names, roles) in both themes, and on a phone.

python -m pytest tests/browser/test_every_page.py
"""

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.explore import Explore

Visit = Callable[..., Explore]
PATHS = (
    "",
    "mask_lab",
    "head_atlas",
    "padding",
    "bug_clinic",
    "obey",
    "lessons",
    "why_causal",
    "generation",
    "cross_attention",
    "pixels",
)
STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const still = app?.dataset.testScriptState === 'notRunning' && !document.querySelector('[data-testid=stSpinner]');
  const charts = [...document.querySelectorAll('[data-testid=stPlotlyChart]')];
  const there = document.querySelector('h3') && charts.every((chart) => chart.querySelector('.main-svg'));
  return still && there ? document.querySelector('[data-testid=stMain]').innerText : null;
}"""
KINDS = {path: type("AnyPage", (Explore,), {"PATH": path, "STATE": STATE}) for path in PATHS}


@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing_serious_in_the_light_or_in_the_dark(visit: Visit, path: str) -> None:
    page = visit(kind=KINDS[path]).page
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(
            "dark => getComputedStyle(document.querySelector('[data-testid=stApp]')).colorScheme === dark", arg=scheme
        )
        page.wait_for_timeout(1500)  # what has changed is tinted for a second
        for violation in Axe().run(page).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                found += [f"{scheme}: {violation['id']}: {node['html'][:200]}" for node in violation["nodes"]]
    assert not found


@pytest.mark.parametrize("path", PATHS)
def test_on_a_phone_the_page_is_seen_and_not_the_sidebar_and_nothing_sticks_out(visit: Visit, path: str) -> None:
    page = visit(kind=KINDS[path], width=390, height=844, fresh=True).page
    assert page.get_by_test_id("stExpandSidebarButton").is_visible()
    assert page.locator("h3").first.is_visible()
    main = page.locator("[data-testid=stMain]")
    assert main.evaluate("main => main.scrollWidth") <= main.evaluate("main => main.clientWidth")
