"""Tests of a class session in a browser: a teacher's page and phones, in one room of a real server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.explore import TIMEOUT
from tests.browser.running import running, stack_traces
from tests.browser.test_restart import CONNECTED, LOSE

pytestmark = pytest.mark.slow  # starts a server


@pytest.fixture(scope="module")
def class_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log: Path = tmp_path_factory.mktemp("class") / "log"
    with running("serve.py", log, HF_HUB_OFFLINE="1", UNMASK_MODELS="story,dates", OMP_NUM_THREADS="1") as address:
        yield address
    assert not stack_traces(log)


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, class_server: str) -> Iterator[Open]:
    """Yield open_page(path, **context): a page in a browser context of its own. Afterwards: no error on a page."""
    pages: list[Page] = []
    errors: list[str] = []

    def opened(path: str, **context: object) -> Page:
        page = browser.new_context(**context).new_page()  # type: ignore[arg-type]
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path if path.startswith("http") else f"{class_server}/{path}")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.context.close()
    assert not errors


NEW_SESSION = """window.WebSocket = class extends WebSocket { // for each connection: it names no earlier one
  constructor(address, [name, token]) { super(address, [name, token]); window.connection = this; }
}"""
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def room_of(teacher: Page) -> str:
    """Open a room on the teacher's page and return its link."""
    teacher.locator(".st-key-teach button").first.click()
    expect(teacher.locator("img.qr")).to_be_visible()
    address = teacher.locator("[role=dialog] code").inner_text()
    teacher.keyboard.press("Escape")
    expect(teacher.locator("[role=dialog]")).to_have_count(0)
    return address


def accessible(page: Page) -> list[str]:
    return [one["id"] for one in Axe(AXE_SCRIPT).run(page).response["violations"]]


def bars(page: Page) -> list[str]:
    return page.locator("ol.bars li b").all_inner_texts()


def test_phones_follow_answer_and_see_what_the_class_chose(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=causal_mask")
    room = room_of(teacher)
    first, second = open_page(room, **PHONE), open_page(room, **PHONE, color_scheme="dark")
    for phone, choice in ((first, 1), (second, 0)):
        phone.locator(f"button[data-choice='{choice}']").tap()
        expect(phone.locator("#status")).to_contain_text("Your answer is in")
        assert phone.locator(".bars").count() == 0
    expect(teacher.locator(".st-key-lesson_room p").first).to_contain_text("2 phones · 2 answered")
    assert bars(teacher) == ["1", "1", "0", "0"]
    late = open_page(room, **PHONE)
    expect(late.locator(".question")).to_be_visible()
    teacher.locator(".st-key-reveal button").click()
    for phone, message in ((first, "That is right"), (second, "Not quite"), (late, "The answer is")):
        expect(phone.locator("#said")).to_contain_text(message)
        assert bars(phone) == ["1", "1", "0", "0"]
        expect(phone.locator("canvas")).to_be_visible()
        assert accessible(phone) == []
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    first.reload()
    expect(first.locator("#said")).to_contain_text("That is right")
    teacher.keyboard.press("ArrowRight")
    expect(late.locator("h1")).to_have_text("Turn it off")
    expect(first.locator(".question button").first).to_be_enabled()
    assert accessible(first) == []


def test_an_answer_that_came_too_late_does_not_count(open_page: Open) -> None:
    teacher, held = open_page("lessons?lesson=causal_mask"), list[Route]()
    phone = open_page(room_of(teacher), **PHONE)
    phone.route("**/answer", lambda route: held.append(route))  # playwright requires a function, not held.append
    phone.locator("button[data-choice='1']").tap()
    teacher.locator(".st-key-reveal button").click()
    expect(phone.locator("#said")).to_contain_text("That is right")
    held[0].fulfill(status=409)
    expect(phone.locator("#status")).to_have_text("This question no longer accepts answers.")
    expect(phone.locator("#said")).to_contain_text("The answer is")
    saved = phone.evaluate("JSON.parse(localStorage.getItem(`unmask ${location.pathname}`))")
    assert saved["given"] == {}


def test_the_room_goes_on_in_a_new_session_and_ends_when_it_is_ended(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=causal_mask&present=true", viewport={"width": 1280, "height": 720})
    phone = open_page(room_of(teacher), **PHONE)
    expect(phone.locator("h1")).to_have_text("Only backwards")
    expect(teacher.locator(".st-key-lesson_room p").first).to_contain_text("1 phone")
    main = teacher.get_by_test_id("stMain")
    assert main.evaluate("main => main.scrollHeight - main.clientHeight") == 0
    assert (
        teacher.locator(".st-key-lesson_room p").first.evaluate("p => parseFloat(getComputedStyle(p).fontSize)") >= 14
    )
    phone.route("**/step*", lambda route: route.abort())
    teacher.keyboard.press("ArrowRight")  # ends the request that waits for a step; the next request is lost
    expect(phone.locator("#status")).to_contain_text("The connection was lost")
    phone.unroute("**/step*")  # the next request is answered at once, with this step
    expect(phone.locator("#status")).to_have_text("", timeout=10_000)
    teacher.keyboard.press("ArrowLeft")
    expect(phone.locator("h1")).to_have_text("Only backwards")
    teacher.add_init_script(NEW_SESSION)
    teacher.reload()
    expect(teacher.locator(".st-key-teach")).to_contain_text("Class session")
    teacher.keyboard.press("ArrowRight")
    expect(phone.locator("h1")).to_have_text("Turn it off")
    expect(teacher.locator(".st-key-lesson_room p").first).to_contain_text("1 phone")
    teacher.evaluate(LOSE)  # as on a laptop that slept for longer than the server waits
    teacher.wait_for_function(CONNECTED)
    open_page(phone.url, **PHONE)
    expect(teacher.locator(".st-key-lesson_room p").first).to_contain_text("2 phones")
    teacher.locator(".st-key-teach button").first.click()
    expect(teacher.locator("img.qr")).to_be_visible()
    assert accessible(teacher) == []
    teacher.get_by_role("button", name="End the session").click()
    teacher.get_by_role("button", name="End and delete the answers").click()
    expect(phone.locator("#status")).to_contain_text("This class session has ended")
    expect(teacher.locator(".st-key-teach")).to_contain_text("Teach")
    teacher.evaluate("""() => localStorage.setItem("unmask lessons", JSON.stringify(
        {answers: {}, room: {id: "gone", secret: "with a server that was restarted"}}))""")
    teacher.reload()
    expect(teacher.get_by_test_id("stToast")).to_contain_text("This class session has ended. Start a new one.")
    expect(teacher.locator(".st-key-teach")).to_contain_text("Teach")


def test_a_training_in_another_tab_is_shown_to_the_class(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=why_training")
    phone = open_page(room_of(teacher), **PHONE)
    expect(phone.locator("h1")).to_have_text("Two models, one mask")
    other = teacher.context.new_page()
    other.goto(teacher.url.split("/lessons")[0] + "/why_causal?step=5")
    other.set_default_timeout(TIMEOUT)
    other.get_by_role("radio", name="200").click()
    other.locator(".st-key-live_start button").click()
    expect(phone.locator("h1")).to_have_text("The training on the teacher's screen")


def test_a_second_tab_of_the_teacher_is_told_of_and_undone(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=causal_mask&step=2")
    phone = open_page(room_of(teacher), **PHONE)
    expect(phone.locator("h1")).to_have_text("Turn it off")
    other = teacher.context.new_page()
    other.goto(teacher.url.split("?")[0] + "?lesson=what_attention_is&step=2")
    expect(phone.locator("h1")).not_to_have_text("Turn it off")
    other.close()
    strip = teacher.locator(".st-key-lesson_room")
    expect(strip).to_contain_text("Phones show another step.")
    assert accessible(teacher) == []
    strip.get_by_role("button", name="Show this step on phones").click()
    expect(phone.locator("h1")).to_have_text("Turn it off")
    expect(strip).not_to_contain_text("another step")


def test_a_phone_counts_the_answers_of_the_lesson_that_ends(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=causal_mask")
    lessons = teacher.url.split("?")[0]
    phone = open_page(room_of(teacher), **PHONE)
    expect(phone.locator("h1")).to_be_visible()
    tab = phone.context.new_page()
    tab.goto(phone.url)
    for lesson, title, choice, score in (
        ("causal_mask", "Only backwards", 1, "1 of 1 answer correct."),
        ("padding", "Rows of one length", 1, "0 of 1 answer correct."),
    ):
        teacher.goto(f"{lessons}?lesson={lesson}")
        expect(phone.locator("h1")).to_have_text(title)
        phone.locator(f"button[data-choice='{choice}']").tap()
        expect(phone.locator("#status")).to_contain_text("Your answer is in")
        teacher.locator(".st-key-reveal button").click()
        expect(phone.locator("#said")).to_be_visible()
        expect(tab.locator("#said")).to_be_visible()
        expect(teacher.locator(".st-key-lesson_room p").first).to_contain_text("1 phone ")
        teacher.goto(f"{lessons}?lesson={lesson}&step=99")
        expect(phone.locator("#score")).to_have_text(score)
        phone.reload()
        expect(phone.locator("#score")).to_have_text(score)


def test_a_presented_chart_leaves_room_for_the_answers_of_the_class(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=causal_mask&step=3", viewport={"width": 1280, "height": 720})
    room_of(teacher)
    teacher.goto(f"{teacher.url}&present=true")
    strip, numbers = (
        teacher.locator(".st-key-lesson_room"),
        teacher.locator("[class*='st-key-numbers_of_'] button").last,
    )
    for width in (1280, 2560, 3840):
        teacher.set_viewport_size({"width": width, "height": width * 9 // 16})
        expect(strip).to_be_visible()
        expect(numbers).to_be_visible()
        teacher.wait_for_function(
            """() => { const main = document.querySelector('[data-testid=stMain]');
            return document.querySelector('.st-key-lesson_chart .nsewdrag') &&
              main.scrollHeight === main.clientHeight }"""
        )
        below, top = numbers.bounding_box(), strip.bounding_box()
        assert below["y"] + below["height"] <= top["y"]
    teacher.set_viewport_size({"width": 1280, "height": 720})
    teacher.goto(teacher.url.split("?")[0] + "?lesson=text_to_next_token&step=2&present=true")
    last = teacher.get_by_role("button", name="Show the answer")  # the text fills the screen: it is scrolled
    expect(last).to_be_visible()
    teacher.wait_for_function(  # once all is drawn, the end of the step is above the strip
        """() => { document.querySelector('[data-testid=stMain]').scrollTo(0, 9999);
        const last = [...document.querySelectorAll('button')].find((one) => one.innerText.includes("Show the answer"));
        const strip = document.querySelector('.st-key-lesson_room');
        return last && strip && last.getBoundingClientRect().bottom <= strip.getBoundingClientRect().top }"""
    )


def test_the_qr_code_has_the_keys_and_stays_when_the_window_changes(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=causal_mask&present=true", viewport={"width": 1280, "height": 720})
    code, title = teacher.locator("img.qr"), teacher.locator("h4")
    teacher.locator(".st-key-teach button").first.click()
    expect(code).to_be_visible()
    for key in ("1", "a", "ArrowRight", "PageDown", "p"):
        teacher.keyboard.press(key)
    for width, least in ((1280, 340), (1920, 600)):
        teacher.set_viewport_size({"width": width, "height": width * 9 // 16})
        teacher.wait_for_timeout(1000)  # the server receives the width and redraws
        assert code.bounding_box()["width"] >= least
        address = teacher.locator("[role=dialog] code").bounding_box()
        assert address["y"] + address["height"] <= width * 9 // 16
    expect(title).to_have_text("Only backwards")
    expect(teacher.locator(".verdict")).to_have_count(0)
    teacher.keyboard.press("Escape")
    expect(code).to_have_count(0)
    assert teacher.locator("[class*='st-key-answer_'] kbd").count() == 0  # the class gives the answers
    teacher.keyboard.press("a")
    expect(teacher.locator(".verdict")).to_contain_text("The answer is: 9")
    teacher.keyboard.press("ArrowRight")
    expect(title).to_have_text("Turn it off")
    expect(code).to_have_count(0)
    teacher.keyboard.press("a")
    teacher.locator("[class*='st-key-numbers_of_'] button").first.click()
    expect(teacher.locator("[data-testid=stPopoverBody]")).to_be_visible()
    teacher.keyboard.press("ArrowRight")
    expect(title).not_to_have_text("Turn it off")  # a picture's numbers capture no keys, unlike the QR code


def test_answers_outlive_the_page_and_can_be_forgotten(open_page: Open) -> None:
    page = open_page("lessons?lesson=causal_mask")
    page.evaluate("localStorage.setItem('unmask lessons', '{damaged')")
    page.locator(".st-key-answer_1 button").click()
    expect(page.locator(".verdict")).to_be_visible()
    page.wait_for_function("() => localStorage.getItem('unmask lessons')?.includes('causal_mask')")
    page.goto(page.url.split("/lessons")[0] + "/lessons")
    expect(page.get_by_text("1 of 5 answered")).to_be_visible()
    page.goto(page.url.split("?")[0] + "?lesson=causal_mask")  # a link without answers
    expect(page.locator(".verdict")).to_be_visible()
    page.locator(".st-key-lesson_forget_all button").first.click()
    expect(page.locator(".st-key-answer_1 button")).to_be_visible()
    page.wait_for_function("() => !localStorage.getItem('unmask lessons').includes('causal_mask')")  # a moment later
    page.goto(page.url.split("/lessons")[0] + "/lessons?lesson=causal_mask")
    expect(page.locator(".st-key-answer_1 button")).to_be_visible()


def test_a_lesson_that_was_rehearsed_is_taught_anew_after_a_reload_too(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=causal_mask")
    teacher.locator(".st-key-answer_1 button").click()
    teacher.wait_for_function("() => localStorage.getItem('unmask lessons')?.includes('causal_mask')")
    phone = open_page(room_of(teacher), **PHONE)
    expect(phone.locator("button[data-choice='1']")).to_be_enabled()
    teacher.wait_for_function("() => !localStorage.getItem('unmask lessons').includes('causal_mask')")
    teacher.goto(teacher.url.split("?")[0] + "?lesson=causal_mask")
    expect(teacher.locator(".st-key-teach")).to_contain_text("Class session")
    expect(teacher.locator(".st-key-answer_1 button")).to_be_visible()


def test_tabs_of_one_browser_keep_each_others_answers_and_the_class(open_page: Open) -> None:
    teacher = open_page("lessons?lesson=causal_mask")
    lessons = teacher.url.split("?")[0]
    other = teacher.context.new_page()
    other.goto(f"{lessons}?lesson=padding")
    expect(other.locator(".st-key-answer_1 button")).to_be_visible()
    room_of(teacher)

    def answer(page: Page, kept: dict[str, str]) -> None:
        page.bring_to_front()
        page.locator(".st-key-answer_1 button").click()
        expect(page.locator(".verdict")).to_be_visible()
        found = "JSON.stringify(JSON.parse(localStorage.getItem('unmask lessons'))?.answers) === kept"
        page.wait_for_function(f"kept => {found}", arg=json.dumps(kept, separators=(",", ":")))

    answer(teacher, {"causal_mask": "1-1"})
    answer(other, {"causal_mask": "1-1", "padding": "1-1"})
    other.goto(f"{lessons}?lesson=causal_mask&step=2")
    answer(other, {"causal_mask": "1-1,2-1", "padding": "1-1"})
    teacher.bring_to_front()
    teacher.reload()
    expect(teacher.locator(".st-key-teach")).to_contain_text("Class session")
    teacher.locator(".st-key-lesson_forget_all button").first.click()
    answer(teacher, {"causal_mask": "1-1"})
    other.bring_to_front()
    other.keyboard.press("ArrowRight")
    answer(other, {"causal_mask": "1-1,3-1"})  # without the answers that were forgotten
    other.locator(".st-key-teach button").first.click()
    other.get_by_role("button", name="End the session").click()
    other.get_by_role("button", name="End and delete the answers").click()
    teacher.bring_to_front()
    expect(teacher.locator(".st-key-teach")).to_contain_text("Teach")
    expect(teacher.locator(".st-key-lesson_room")).to_have_count(0)
