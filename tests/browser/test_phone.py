"""The page of a phone in a class, without a server: what it makes of a step."""

import gzip
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from lessons.questions import Answer
from lessons.reading import read
from lessons.statement import Statement
from viz.lessons.phone import PhoneStep, end_body, phone_page

ROOM = "http://class.test/unmask/room/abc"
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


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    page, waiting = browser.new_page(), list[Route]()
    answer = Answer((Statement("two"), Statement("three")), frozenset({1}), Statement("Count them."))
    body = gzip.decompress(PhoneStep(read(LESSON), 1, "abc-1", answer, None).body())

    def step(route: Route) -> None:
        if waiting:  # until there is another step
            return waiting.append(route)
        waiting.append(route)
        return route.fulfill(body=body, headers={"ETag": "1"})

    page.route(ROOM, lambda route: route.fulfill(body=gzip.decompress(phone_page("en")), content_type="text/html"))
    page.route(f"{ROOM}/step*", step)
    page.route(f"{ROOM}/answer", lambda route: route.fulfill(json=0))
    page.goto(ROOM)
    yield page
    page.close()


def test_a_link_that_is_no_address_leaves_the_step_as_it_is(phone: Page) -> None:
    phone.get_by_role("button", name="two").click()
    expect(phone.locator("#status")).to_contain_text("Your answer is in")
    links = phone.locator("#step a").evaluate_all("all => all.map((one) => one.href)")
    assert links == ["https://example.com:port/", "https://example.com/", "http://class.test/unmask/layers?layer=2"]


def test_an_answer_whose_confirmation_was_lost_is_the_one_that_counts(phone: Page) -> None:
    two, three = (phone.get_by_role("button", name=name) for name in ("two", "three"))
    phone.route(f"{ROOM}/answer", lambda route: route.abort(), times=1)
    two.click()
    expect(phone.locator("#status")).to_have_text("Your answer did not arrive. Tap it again.")
    phone.wait_for_timeout(200)  # a step's request goes on: its success is not the answer's
    expect(phone.locator("#status")).to_have_text("Your answer did not arrive. Tap it again.")
    three.click()
    expect(two).to_have_attribute("aria-pressed", "true")
    expect(three).to_have_attribute("aria-pressed", "false")
    expect(phone.locator("#status")).to_contain_text("Your answer is in")
    kept = phone.evaluate("JSON.parse(localStorage.getItem(`unmask ${location.pathname}`))")
    assert kept["given"] == {"abc-1": 0}


def test_a_phone_that_missed_the_reveal_counts_its_answer(phone: Page) -> None:
    phone.get_by_role("button", name="two").click()
    expect(phone.locator("#status")).to_contain_text("Your answer is in")
    end = gzip.decompress(end_body(read(LESSON), "abc-2", {"abc-1": [0], "abc-9": [1]}))  # one of them not answered
    phone.unroute(f"{ROOM}/step*")
    phone.route(f"{ROOM}/step*", lambda route: route.fulfill(body=end), times=1)
    phone.reload()
    expect(phone.locator("#score")).to_have_text("1 of 1 answer correct.")
