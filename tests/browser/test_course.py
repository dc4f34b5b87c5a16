"""Tests of the pages of `unmask course` on a file server: whole lessons by keyboard, without the app, and offline.

The pictures' numbers are compared with those that torch computes; answers come from lessons.questions.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

import unmask
from i18n import LANGUAGES
from lessons.reading import FOLDER, shelf
from tests.browser.conftest import Watch
from tests.browser.test_live_page import HELD
from unmask.__main__ import main

AXE = "axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations)"
OVERFLOW = "[document.documentElement.scrollWidth - innerWidth, document.documentElement.scrollHeight - innerHeight]"
OWN = """---
title: My <b>own</b>
aim: To see a window.
minutes: 1
next: padding
text: Once upon a time there was a little girl.
---

## A window

```run
head: L0 H3
masks: {"sliding": 3}
query: 8
show: pair
ask: sees
```

<img src=x onerror="window.hurt = 1"> Look.

## Three texts and one

```run
text: |
  The king had a ring.
  The cat ran away.
  Tom sat down.
beside: {text: The king had a ring.}
show: texts
```
"""
Open = Callable[..., Page]


class Handler(SimpleHTTPRequestHandler):
    """The request handler of a static host, which logs nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    (folder / "mine.en.md").write_text(OWN, encoding="utf-8")
    assert main(["course", "--lessons", str(folder), "-o", str(folder / "site")]) == 0
    return folder / "site"


@pytest.fixture(scope="module")
def host(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def visit(browser: Browser, host: str) -> Iterator[Open]:
    """Yield a function that opens a page of the course. Afterwards: no request to other hosts, and no error."""
    watch, contexts = Watch(host), list[BrowserContext]()

    def opened(path: str, context: BrowserContext | None = None, **how: Any) -> Page:
        if context is None:
            context = browser.new_context(**({"viewport": {"width": 1280, "height": 720}} | how))
            contexts.append(context)
        page = context.new_page()
        watch.follow(page)
        page.goto(f"http://{host}/{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not watch.errors
    assert not watch.elsewhere


def settled(page: Page) -> None:
    """Wait until the step's run is shown: nothing is loading or running, and nothing has failed."""
    expect(page.locator("#status")).to_be_empty()


def press(page: Page, key: str) -> None:
    page.keyboard.press(key)
    settled(page)


def verdict(page: Page) -> str:
    found = page.locator(".said:visible")
    return found.inner_text() if found.count() else ""


def cell(page: Page, part: str, query: int, key: int) -> str:
    """Move to a cell of a heatmap by arrow keys, and return its text."""
    canvas = page.locator(f"[data-part={part}] canvas")
    canvas.focus()
    for arrow, steps in (("ArrowUp", 24), ("ArrowLeft", 24), ("ArrowDown", query), ("ArrowRight", key)):
        for _ in range(steps):
            page.keyboard.press(arrow)
    text: str = page.locator(f"[data-part={part}] .cell").text_content() or ""
    return text


def violations(page: Page) -> list[tuple[str, list[str]]]:
    page.evaluate(AXE_SCRIPT)
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in page.evaluate(AXE)]


@pytest.mark.parametrize(
    ("language", "first", "phrases"),  # lessons show the same runs in Chinese (tests/viz/lessons): only the last two
    [("en", 0, {"That is right.", "Not quite."}), ("zh", -2, {"答对了。", "不对，"})],
)
def test_a_teacher_walks_through_lessons_by_keyboard(visit: Open, language: str, first: int, phrases: set[str]) -> None:
    every = shelf(FOLDER, language)
    page = visit(f"{language}/{every[first].name}.html", reduced_motion="reduce")
    assert page.get_attribute("html", "lang") == language
    press(page, "p")
    verdicts, lessons = set(), [one.lesson for one in every[first:] if one.lesson]
    for lesson in lessons:
        expect(page.locator("h1")).to_have_text(lesson.title)
        expect(page.locator("html")).to_have_attribute("data-presented", "")  # also in the next lesson
        settled(page)
        for number, step in enumerate(lesson.steps):
            assert page.locator("section:visible h2").inner_text() == step.title
            if step.ask:
                assert verdict(page) == ""
                press(page, str(1 + number % 2))  # an answer that is right in some steps and wrong in others
                found = verdict(page)
                verdicts |= {words for words in phrases if words in found}
                assert found
            shows_picture = page.locator(":is(.shown :is(canvas, table, svg, img), p.losses):visible").count()
            assert shows_picture, f"{lesson.title}, {step.title}"
            assert max(page.evaluate(OVERFLOW)) <= 0, f"{lesson.title}, {step.title}"
            press(page, "ArrowRight")
        questions = sum(step.ask is not None for step in lesson.steps)
        assert page.locator("ol.seen li:is(.right, .wrong)").count() == questions
        assert max(page.evaluate(OVERFLOW)) <= 0
        page.keyboard.press("ArrowRight")
    assert verdicts == phrases
    expect(page).to_have_url(re.compile(rf"/{language}/index\.html#present"))
    assert page.locator("ol.lessons a").count() == len(every) + 1


def test_what_is_presented_fits_a_large_screen_and_tokens_are_larger_than_their_numbers(visit: Open) -> None:
    page = visit("en/causal_mask.html#present", viewport={"width": 1920, "height": 1080})
    sizes = "ol.tokens li, ol.tokens small"
    measured = "all => all.map((one) => parseFloat(getComputedStyle(one).fontSize))"
    token, number = page.locator(sizes).evaluate_all(measured)[:2]
    assert number < token == 28.8
    for step in (2, 3):
        page.goto(f"{page.url.split('#')[0]}?{step}#step={step}&{step}=0&present")
        settled(page)
        expect(page.locator("section:visible .answered").last).to_be_visible()
        assert max(page.evaluate(OVERFLOW)) <= 0, step


def test_losses_before_the_answer_say_whose_they_are(visit: Open) -> None:
    page = visit("en/attention_sinks.html#step=3")
    expect(page.locator("p.losses b")).to_have_text(["before"])
    press(page, "a")  # shows the answer
    assert "The answer is: It goes up." in verdict(page)
    expect(page.locator("p.losses b")).to_have_text(["now", "before"])


def test_its_pictures_are_those_of_the_model_which_runs_in_the_page(visit: Open) -> None:
    page, model = visit("en/causal_mask.html#step=2"), unmask.load("story")
    text = "Once upon a time there was a little girl who lived in a house by the sea."
    settled(page)
    standard, lifted = model.run(text), model.run(text, causal=False)
    assert cell(page, "now", 2, 5).endswith("· blocked by causal")  # before the answer: the run to compare with
    expect(page.locator("[data-part=difference]")).to_be_hidden()
    page.locator("body").click(position={"x": 2, "y": 2})
    press(page, "4")
    weights = [run.head(3, 5).weights for run in (lifted, standard)]
    assert cell(page, "now", 2, 5).endswith(f"· weight {weights[0][2, 5]:.4f}")
    assert cell(page, "standard", 5, 2).endswith(f"· weight {weights[1][5, 2]:.4f}")
    share = f"{lifted.survey.future[3, 5] * 100:.1f}%"
    assert share in verdict(page)

    page.get_by_role("button", name="Change the text and the masks").click()
    page.locator("#text").fill("The little cat saw the big dog")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#status")).to_contain_text("Tokens: ")
    expect(page.locator("#cancel")).to_be_disabled()
    other = model.run("The little cat saw the big dog", causal=False)
    assert cell(page, "now", 2, 5).endswith(f"· weight {other.head(3, 5).weights[2, 5]:.4f}")
    page.get_by_role("button", name="Back to the step").click()
    settled(page)
    assert cell(page, "now", 2, 5).endswith(f"· weight {weights[0][2, 5]:.4f}")

    page = visit("en/causal_mask.html#step=3")
    settled(page)
    page.locator("[data-answer]:visible").first.click()
    settled(page)
    lines = [one.inner_text().split("\t") for one in page.locator("#texts tr").all()[1:]]
    texts = [one[0] for one in lines]
    for row, (_, now, before) in enumerate(lines):
        for causal, shown in ((False, now), (True, before)):
            losses = model.run(texts, causal=causal, row=row).losses
            assert float(shown) == pytest.approx(np.nanmean(losses), abs=0.006)
    page.get_by_role("button", name="Change the text and the masks").click()  # opens with those of this step
    expect(page.locator("#status")).to_contain_text("Tokens: ")
    assert page.locator("#text").input_value().split("\n") == texts
    assert not page.locator("[data-mask=causal]").is_checked()


def test_two_models_and_one_that_needs_the_app(visit: Open) -> None:
    page = visit("en/why_training.html")
    settled(page)
    page.keyboard.press("9")  # no such choice
    assert verdict(page) == ""
    press(page, "1")
    means = re.findall(
        r"(\d+\.\d\d) \((The model trained with\w* the mask)\)", page.locator("#losses p").first.inner_text()
    )
    assert [name for _, name in means] == ["The model trained without the mask", "The model trained with the mask"]
    assert float(means[0][0]) < 0.05 < 1 < float(means[1][0])
    assert f"{means[1][0]} nats/token" in verdict(page)
    page = visit("en/translator.html#step=3")
    settled(page)
    assert page.locator(".row:visible ol.tokens").count() == 2
    needs_app = page.locator(".shown [data-step='3']").get_by_text("This run needs the app.")
    expect(needs_app).to_be_hidden()
    press(page, "1")
    expect(needs_app).to_be_visible()
    expect(page.locator(".shown [data-step='3'] canvas")).to_be_visible()
    expect(page.get_by_role("button", name="Change the text and the masks")).to_be_hidden()


def test_a_teacher_s_own_lesson(visit: Open) -> None:
    page = visit("zh/mine.html")  # the lesson exists in one language only
    settled(page)
    assert page.locator("h1").inner_text() == "My <b>own</b>"
    right = page.locator("[data-answer]:visible", has_text=re.compile(r"\b3$"))
    right.click()
    settled(page)
    assert "答对了。" in verdict(page)
    assert page.evaluate("window.hurt") is None
    page.goto(page.url.partition("#")[0] + "#step=1.5&1=constructor")  # an address may contain anything
    page.reload()
    settled(page)
    assert "答对了。" not in verdict(page)
    page.go_back()  # and the answer is still there
    page.reload()
    settled(page)
    assert "答对了。" in verdict(page)
    press(page, "ArrowRight")
    lines = [one.inner_text().split("\t") for one in page.locator("#texts tr").all()[1:]]
    losses = [np.nanmean(unmask.load("story").run(text).losses) for text, _ in lines]
    assert [float(loss) for _, loss in lines] == pytest.approx(losses, abs=0.006)
    assert len(lines) == 3
    press(page, "ArrowRight")
    assert page.locator("ol.seen li.right").count() == 1
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"/zh/padding\.html"))
    settled(page)


def test_nothing_can_be_changed_before_the_model_is_there(browser: Browser, visit: Open) -> None:
    context, held = browser.new_context(), list[Route]()
    context.route("**/models/*", lambda route: held.append(route))  # playwright requires a function, not held.append
    page = visit("en/causal_mask.html#step=2&2=0", context)
    change = page.get_by_role("button", name="Change the text and the masks")
    while not held:
        page.wait_for_timeout(20)
    expect(change).to_be_disabled()
    held[0].continue_()
    settled(page)
    expect(change).to_be_enabled()
    context.close()


def test_a_click_on_the_last_step_s_picture_does_not_change_the_next_one(visit: Open) -> None:
    page = visit("en/what_attention_is.html#step=2&2=0&3=0")
    settled(page)
    page.evaluate(HELD)
    page.keyboard.press("ArrowRight")
    page.evaluate("oneIsHeld()")
    page.locator("[data-part=now] canvas").focus()
    for key in ("ArrowUp", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    page.evaluate("letGo()")
    settled(page)
    assert (page.locator("#after").text_content() or "").endswith("(12)")


def test_it_works_without_a_network_once_it_was_opened(visit: Open) -> None:
    page = visit("index.html")
    page.get_by_role("link", name="English").click()
    page.evaluate("navigator.serviceWorker.ready")
    page.context.set_offline(True)
    page.get_by_role("link", name="Why training needs the mask").click()
    settled(page)
    for _ in range(4):
        press(page, "1")
        press(page, "ArrowRight")
    assert page.locator("ol.seen li:is(.right, .wrong)").count() == 4
    page.get_by_role("link", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    settled(page)
    page.goto(page.url.split("/zh/")[0] + "/")
    expect(page.get_by_role("link", name="English")).to_be_visible()


def test_in_a_frame_of_another_page(visit: Open, site: Path) -> None:
    page = visit("en/index.html")
    page.get_by_text("In a frame").click()
    code = page.locator("code", has_text="padding.html").inner_text().replace('src="', 'src="en/')
    (site / "framing.html").write_text(f"<!doctype html><title>x</title><link rel='icon' href='data:,'>{code}")
    page = visit("framing.html")
    frame = page.frame_locator("iframe")
    expect(frame.locator("#status")).to_be_empty()
    frame.locator("[data-answer]:visible").first.click()
    expect(frame.locator(".said:visible")).to_be_visible()
    expect(frame.get_by_role("link", name="All lessons")).to_be_hidden()
    assert page.locator("iframe").get_attribute("title") == "Padding"


@pytest.mark.parametrize(
    ("path", "how"),
    [
        ("en/what_attention_is.html#step=5", {}),
        ("zh/causal_mask.html#step=2", {"color_scheme": "dark"}),
        (
            "en/translator.html#step=4",
            {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
        ),
    ],
)
def test_axe_finds_nothing_and_nothing_sticks_out(visit: Open, path: str, how: dict[str, Any]) -> None:
    page = visit(path, bypass_csp=True, **how)
    settled(page)
    assert not violations(page)
    if page.locator("[data-answer]:visible").count():
        page.locator("[data-answer]:visible").first.click()
        settled(page)
        assert not violations(page)
    assert page.evaluate(OVERFLOW)[0] <= 0
    while not page.locator("ol.seen").is_visible():
        press(page, "ArrowRight")
    assert not violations(page)
    page.goto(page.url.rpartition("/")[0] + "/index.html")
    for summary in page.locator("summary").all():
        summary.click()
    assert not violations(page)
    assert page.evaluate(OVERFLOW)[0] <= 0


def test_languages_have_the_same_pages(site: Path) -> None:
    names = [{file.name for file in (site / language).iterdir()} for language in LANGUAGES]
    assert names[0] == names[1]
