"""Tests of the language switch: first the browser's language, then the user's, also in links, Back and Forward."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.explore import TIMEOUT

ENGLISH, CHINESE = ("Explore", "Mask Lab"), ("探索", "掩码实验室")


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """Yield a tab of a browser whose own language is Chinese."""
    context = browser.new_context(locale="zh-CN", viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    yield context.new_page()
    context.close()


@pytest.fixture
def chinese(server: str, tab: Page) -> Iterator[Page]:
    """Yield Explore in a browser whose own language is Chinese and that stores nothing of the tests before."""
    tab.set_default_timeout(TIMEOUT)
    tab.goto(server)
    yield tab
    tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    tab.context.clear_cookies()
    tab.goto("about:blank")


def speaks(page: Page, names: tuple[str, str]) -> None:
    """Wait until the page's `lang`, its links, the switch and the overview's words are those of this language."""
    expect(page.locator("html")).to_have_attribute("lang", "en" if names is ENGLISH else "zh")
    switch = page.get_by_role("radio", name="English" if names is ENGLISH else "中文", exact=True)
    expect(page.locator(".st-key-nav a").nth(1)).to_contain_text(names[1])
    expect(switch).to_be_checked()
    head = "head" if names is ENGLISH else "头"
    expect(page.locator(".st-key-overview .name")).to_contain_text(head)


def chosen(page: Page) -> list[str]:
    """Return the language in the address, an empty list if there is none."""
    return parse_qs(urlsplit(page.url).query).get("lang", [])


def test_the_browsers_language_the_readers_choice_back_and_forward(chinese: Page) -> None:
    speaks(chinese, CHINESE)
    assert chosen(chinese) == [], "nobody has chosen it"
    chinese.get_by_role("radio", name="English", exact=True).click()
    speaks(chinese, ENGLISH)
    expect(chinese.locator(".st-key-nav a").nth(1)).to_have_attribute("href", "mask_lab?lang=en")
    assert chosen(chinese) == ["en"]
    chinese.go_back()
    speaks(chinese, CHINESE)
    assert chosen(chinese) == []
    chinese.go_forward()
    speaks(chinese, ENGLISH)


def test_a_link_goes_before_the_browsers_language(chinese: Page, server: str) -> None:
    for link, names in (("en", ENGLISH), ("nowhere", CHINESE)):
        chinese.goto(f"{server}/?lang={link}")
        speaks(chinese, names)


def test_the_switch_is_in_reach_of_the_keyboard_and_stands_over_the_pages(chinese: Page) -> None:
    speaks(chinese, CHINESE)
    switch = chinese.get_by_role("radio", name="English", exact=True)
    chinese.get_by_role("radio", name="中文", exact=True).focus()
    chinese.keyboard.press("ArrowLeft")
    expect(switch).to_be_focused()
    chinese.keyboard.press("Enter")
    speaks(chinese, ENGLISH)
    box, first = switch.bounding_box(), chinese.locator(".st-key-nav a").first.bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] < first["y"]
    assert first["y"] < 80, "the pages begin where they would without it"
