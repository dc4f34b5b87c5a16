"""Tests of the phone's page in a class session, without a server: how it shows a step and sends answers."""

import gzip
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from i18n import spoken
from lessons.questions import Answer
from lessons.reading import FOLDER, read, shelf
from lessons.statement import Statement
from model.heads.vectors import four_token_steps
from viz.lessons import pictures
from viz.lessons.phone import Drawn, PhoneStep, end_body, phone_page

ROOM = "http://class.test/unmask/room/abc"
UNKNOWN = "It is not known whether your answer arrived. Tap it again."
SOON = """const limit = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = (ms) => limit(ms / 20);"""
LESSON = """---
title: T
aim: A
minutes: 1
---

## One

```run
text: one two
ask: sees
```

[no address](https://example.com:port/) [another](https://example.com/) [a page](layers?layer=2)
"""


ANSWER = Answer((Statement("two"), Statement("three")), frozenset({1}), Statement("Count them."))
STEP = gzip.decompress(PhoneStep(read(LESSON), 1, "abc-1", ANSWER, None).body())


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:  # of which tests can open more tabs
        page = context.new_page()
        open_room(page, STEP)
        yield page


def open_room(phone: Page, body: bytes) -> None:
    phone.route(ROOM, lambda route: route.fulfill(body=gzip.decompress(phone_page("en")), content_type="text/html"))
    serve(phone, body)
    phone.route(f"{ROOM}/answer", lambda route: route.fulfill(json=0))
    phone.goto(ROOM)


def serve(phone: Page, body: bytes) -> None:
    """Serve `body` to a phone that has no step; the request of one that has waits for the next step."""

    def step(route: Route) -> None:
        if "if-none-match" not in route.request.headers:
            route.fulfill(body=body, headers={"ETag": "1"})

    phone.route(f"{ROOM}/step*", step)


def test_a_link_that_is_no_address_leaves_the_step_as_it_is(phone: Page) -> None:
    phone.get_by_role("button", name="two").click()
    expect(phone.locator("#status")).to_contain_text("Your answer is in")
    links = phone.locator("#step a").evaluate_all("all => all.map((one) => one.href)")
    assert links == ["https://example.com:port/", "https://example.com/", "http://class.test/unmask/layers?layer=2"]


def test_an_answer_whose_confirmation_was_lost_is_the_one_that_counts(phone: Page) -> None:
    two, three = (phone.get_by_role("button", name=name) for name in ("two", "three"))
    phone.route(f"{ROOM}/answer", lambda route: route.abort(), times=1)
    two.click()
    expect(phone.locator("#status")).to_have_text(UNKNOWN)
    phone.wait_for_timeout(200)  # the request for a step continues: its success does not confirm the answer
    expect(phone.locator("#status")).to_have_text(UNKNOWN)
    three.click()
    expect(two).to_have_attribute("aria-pressed", "true")
    expect(three).to_have_attribute("aria-pressed", "false")
    expect(phone.locator("#status")).to_have_text("Your first answer had arrived, and that one counts.")
    saved = phone.evaluate("JSON.parse(localStorage.getItem(`unmask ${location.pathname}`))")
    assert saved["given"] == {"abc-1": 0}


@pytest.mark.parametrize("step", ["abc-1", "abc-2"])
def test_an_answer_that_fails_leaves_those_of_another_tab(phone: Page, step: str) -> None:
    """Both tabs were opened before the first answer."""
    other, three = phone.context.new_page(), "button[data-choice='1']"
    open_room(other, gzip.decompress(PhoneStep(read(LESSON), 1, step, ANSWER, None).body()))
    expect(other.locator(three)).to_be_visible()
    phone.get_by_role("button", name="two").click()
    expect(phone.locator("#status")).to_contain_text("Your answer is in")
    other.route(f"{ROOM}/answer", lambda route: route.abort(), times=1)
    other.locator(three).click()
    if step == "abc-1":
        expect(other.locator("button[data-choice='0']")).to_have_attribute("aria-pressed", "true")
        expect(other.locator("#status")).to_contain_text("Your answer is in")
    else:
        expect(other.locator("#status")).to_have_text(UNKNOWN)
    expect(other.locator(three)).to_have_attribute("aria-pressed", "false")
    saved = "JSON.parse(localStorage.getItem(`unmask ${location.pathname}`)).given"
    assert phone.evaluate(saved) == {"abc-1": 0}
    if step == "abc-2":
        other.locator(three).click()
        expect(other.locator("#status")).to_contain_text("Your first answer had arrived")
        assert phone.evaluate(saved) == {"abc-1": 0, "abc-2": 0}


def test_a_phone_that_missed_the_reveal_counts_its_answer(phone: Page) -> None:
    phone.get_by_role("button", name="two").click()
    # not by wait_for_function: it polls by eval, which the page's content security policy forbids
    for _ in range(400):
        if "abc-1" in phone.evaluate("localStorage.getItem(`unmask ${location.pathname}`)"):
            break
        phone.wait_for_timeout(50)
    end = gzip.decompress(end_body(read(LESSON), "abc-2", {"abc-1": [0], "abc-9": [1]}))  # abc-9 not answered
    serve(phone, end)
    phone.reload()
    expect(phone.locator("#score")).to_have_text("1 of 1 answer correct.")


def test_a_connection_that_says_nothing_is_told_and_tried_again(phone: Page) -> None:
    phone.add_init_script(SOON)
    phone.reload()
    phone.route(f"{ROOM}/answer", lambda route: None, times=1)
    phone.get_by_role("button", name="two").click()
    expect(phone.locator("#status")).to_have_text(UNKNOWN)
    expect(phone.locator("#status")).to_have_text("The connection was lost. Trying again …")
    step = gzip.decompress(PhoneStep(read(LESSON.replace("One", "Two")), 1, "abc-1", None, None).body())
    serve(phone, step)
    expect(phone.locator("h1")).to_have_text("Two")


def test_an_answer_by_keyboard_keeps_the_focus_where_the_question_is(phone: Page) -> None:
    two = phone.get_by_role("button", name="two")
    two.focus()
    phone.keyboard.press("Enter")
    expect(phone.locator("#status")).to_contain_text("Your answer is in")
    expect(two).to_be_focused()
    expect(two).to_be_disabled()
    phone.get_by_role("button", name="three").click(force=True)
    expect(two).to_have_attribute("aria-pressed", "true")
    expect(phone.locator("#status")).to_contain_text("Your answer is in")


def test_a_step_is_marked_as_in_the_teachers_language(phone: Page) -> None:
    with spoken("zh"):
        step = gzip.decompress(PhoneStep(read(LESSON), 1, "abc-1", None, None).body())
    serve(phone, step)
    phone.reload()
    expect(phone.locator("#step")).to_have_attribute("lang", "zh")
    expect(phone.locator("html")).to_have_attribute("lang", "en")


def test_a_row_of_numbers_fits_a_phone_and_is_scrolled_by_keys_on_a_narrower_one(phone: Page) -> None:
    (lesson,) = [one.lesson for one in shelf(FOLDER, "en") if one.name == "mask_on_a_score"]
    given = lesson.steps[6].numbers.plain
    drawn = Drawn(pictures.numbers(given, four_token_steps(given)))
    step = gzip.decompress(PhoneStep(lesson, 7, "abc-7", None, None, drawn).body())
    serve(phone, step)
    for width, tabs in ((390, None), (320, "0")):
        phone.set_viewport_size({"width": width, "height": 700})
        phone.reload()
        picture = phone.locator(".lesson_picture")
        expect(picture).to_be_visible()
        fits = picture.evaluate("one => one.scrollWidth <= one.clientWidth")
        assert (fits, picture.get_attribute("tabindex")) == (tabs is None, tabs)
