"""Accessibility violations that axe-core finds on a page."""

from collections.abc import Sequence

from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe

from tests.browser.explore import Explore

COLOURS = ["color-contrast", "link-in-text-block"]  # rules that depend on the theme, not on the language
SIDEWAYS = ["scrollable-region-focusable"]  # rules that depend on the window's width
LOADS = {"assets": ["media"]}  # preloaded; only one experimental rule, which is off, needs the style sheets


def violations(
    page: Explore, selector: str | None = None, *, colours: bool = True, others: bool = True, only: Sequence[str] = ()
) -> list[dict]:
    """Return all violations on the page, or only those within this selector.

    colours: whether to run the rules COLOURS. others: whether to run all others. only: the sole rules to run."""
    options: dict = {"resultTypes": ["violations"], "preload": LOADS}  # else it also sends the elements that pass
    if only or not others:
        options["runOnly"] = {"type": "rule", "values": [*only] or COLOURS}
    elif not colours:
        options["rules"] = {rule: {"enabled": False} for rule in COLOURS}
    there = page.page.evaluate("'axe' in window")
    return Axe("" if there else AXE_SCRIPT).run(page.page, context=selector, options=options).response["violations"]


def serious(page: Explore, **rules: bool) -> list[str]:
    """Return the violations whose impact is serious or critical, one line per element."""
    return [
        f"{violation['id']}: {node['html'][:200]}"
        for violation in violations(page, **rules)
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
