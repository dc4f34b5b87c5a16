"""Tests of "Ask me first" on Explore and in the Mask Lab: the number on an answer is its key."""

from collections.abc import Callable

import pytest

from tests.browser.explore import Explore
from tests.browser.lab import Lab

Visit = Callable[..., Explore]


@pytest.mark.parametrize(("kind", "mask"), [(Explore, "Causal"), (Lab, "Sinks")])
def test_number_keys_answer_after_a_click_on_a_mask_and_after_space(
    visit: Visit, kind: type[Explore], mask: str
) -> None:
    page = visit("text=Tyger Tyger, burning bright", anew=True, kind=kind)
    choices, verdict = page.page.locator("[class*='st-key-first_'] button"), page.page.locator(".verdict")
    page.page.locator(".st-key-ask_first_on label").click()
    page.page.locator(".st-key-listening_shortcuts").wait_for(state="attached")
    page.toggle(mask)
    choices.first.wait_for()
    page.after(lambda: page.page.keyboard.press("2"))
    assert choices.count() == 0
    assert verdict.is_visible()
    page.page.get_by_role("switch", name=mask, exact=True).focus()
    page.after(lambda: page.page.keyboard.press("Space"))
    choices.first.wait_for()
    page.after(lambda: page.page.keyboard.press("1"))
    assert choices.count() == 0
    assert verdict.is_visible()
