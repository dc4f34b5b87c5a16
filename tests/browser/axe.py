"""What axe-core says of a page."""

from collections.abc import Sequence

from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe

from tests.browser.explore import Explore

COLOURS = ["color-contrast", "link-in-text-block"]  # the rules that the theme matters for, and the language does not
SIDEWAYS = ["scrollable-region-focusable"]  # the rules that a window's width matters for
LOADS = {"assets": ["media"]}  # before it looks; the style sheets are for one rule alone, an experiment that is off


def violations(
    page: Explore, place: str | None = None, *, colours: bool = True, others: bool = True, only: Sequence[str] = ()
) -> list[dict]:
    """All violations, in one place of the page where one is named; by the rules about colours, the others, or all; by
    these only where some are named."""
    options: dict = {"resultTypes": ["violations"], "preload": LOADS}  # of all that is well it would send every element
    if only or not others:
        options["runOnly"] = {"type": "rule", "values": [*only] or COLOURS}
    elif not colours:
        options["rules"] = {rule: {"enabled": False} for rule in COLOURS}
    there = page.page.evaluate("'axe' in window")
    return Axe("" if there else AXE_SCRIPT).run(page.page, context=place, options=options).response["violations"]


def serious(page: Explore, **rules: bool) -> list[str]:
    """What is serious or worse."""
    return [
        f"{violation['id']}: {node['html'][:200]}"
        for violation in violations(page, **rules)
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
