"""Tests of all lessons: presented by keyboard alone on a projector, a large screen and a phone, and taken by touch."""

from collections.abc import Callable
from functools import partial

import pytest
from playwright.sync_api import Browser

from lessons.reading import FOLDER, shelf
from tests.browser.axe import violations
from tests.browser.explore import Explore

Visit = Callable[..., Explore]
AT = "([title, there]) => (document.querySelector('h4').innerText === title) === there"
NAVIGATION = "[data-testid=stMain] h3, .st-key-lesson_nav button:visible"
VERDICTS = {"en": {"That is right.", "Not quite."}, "zh": {"答对了。", "不对，"}}


class Lessons(Explore):
    """The page Lessons, once it has settled; `verdict` is its text about an answer."""

    PATH = "lessons"
    STATE = """() => {
      const app = document.querySelector('[data-testid=stApp]');
      const still = app?.dataset.testScriptState === 'notRunning' && !document.querySelector('[data-testid=stSpinner]');
      const charts = [...document.querySelectorAll('.chart')];
      const there = document.querySelector('h4') && charts.every((chart) => chart.ariaBusy === 'false');
      return still && there ? document.querySelector('[data-testid=stMain]').innerText : null;
    }"""

    def press(self, key: str) -> None:
        self.after(lambda: self.page.keyboard.press(key))

    def tap(self, button: str, which: int = 0) -> None:
        self.after(lambda: self.page.locator(button).nth(which).tap())

    def answered(self, answer: Callable[[], object]) -> None:
        """Answer, and wait for the verdict: a typed number reaches the server before the click on the button."""
        self.after(lambda: (answer(), self.page.locator(".verdict").wait_for()))

    def verdict(self) -> str:
        found = self.page.locator(".verdict")
        return found.inner_text() if found.count() else ""

    def title(self) -> str:
        return self.page.locator("h4").first.inner_text()

    def overflow(self) -> tuple[int, int]:
        """Return by how many pixels the page is too wide and too tall for its window."""
        return tuple(
            self.page.get_by_test_id("stMain").evaluate(
                "main => [main.scrollWidth - main.clientWidth, main.scrollHeight - main.clientHeight]"
            )
        )


def test_a_teacher_walks_through_by_keyboard(visit: Visit) -> None:
    page = visit("lesson=what_attention_is&present=true&lang=en", height=720, kind=Lessons)
    assert not page.page.get_by_test_id("stSidebar").is_visible()
    verdicts, looked_at = set(), set()
    for shelved in shelf(FOLDER, "en"):
        for number, step in enumerate(shelved.lesson.steps):
            assert page.title() == step.title
            if step.ask:
                assert page.verdict() == ""
                page.press(str(1 + number % 2))  # an answer that is right in some steps and wrong in others
                text = page.verdict()
                verdicts |= {words for words in VERDICTS["en"] if words in text}
            where = f"{shelved.name}, {step.title}"
            assert page.overflow() == (0, 0), where
            assert page.page.evaluate(SMALL) == [], where
            look = step.show, step.ask is None  # contrast, the slowest, for the first step of each kind
            assert violations(page, colours=look not in looked_at) == [], where
            looked_at.add(look)
            page.press("ArrowRight")
        assert page.title() == "Summary"
        questions = sum(step.ask is not None for step in shelved.lesson.steps)
        assert page.page.locator("ol.seen li").count() == questions
        assert page.overflow() == (0, 0)
        if shelved.lesson.next:
            page.press("ArrowRight")
    assert verdicts == VERDICTS["en"]
    page.press("p")
    assert page.page.get_by_test_id("stSidebar").is_visible()


def test_space_on_a_control_of_a_picture_does_not_turn_the_page(visit: Visit) -> None:
    page = visit("lesson=what_attention_is&step=5&present=true", kind=Lessons)
    control = page.page.locator(".overview :is(select, input, button)").first
    for key in (" ", "PageDown"):
        prevented = control.evaluate(
            """(one, key) => {
              const event = new KeyboardEvent("keydown", { key, bubbles: true, composed: true, cancelable: true });
              one.dispatchEvent(event);
              return event.defaultPrevented;
            }""",
            key,
        )
        assert not prevented
    assert page.title() == "All heads at once"


def test_the_keys_on_buttons_are_as_clear_as_the_words_beside_them(visit: Visit) -> None:
    page = visit("lesson=causal_mask&step=3", kind=Lessons)
    keys = page.page.locator("[data-testid=stMain] kbd")
    for look in page.looks(1280):
        colours = keys.evaluate_all("""all => all.map((key) => {
          const words = key.closest("button").querySelector("p");
          return [key, words].map((one) => `${getComputedStyle(one).color} ${getComputedStyle(one).opacity}`);
        })""")
        assert len(colours) == 7
        assert all(key == words for key, words in colours), look


def test_nothing_sticks_out_on_a_phone_and_then_on_a_large_screen(visit: Visit) -> None:
    """One question as it is, and one presented and in Chinese."""
    for query in ("lesson=causal_mask&step=5", "lesson=why_training&step=1&present=true&lang=zh"):
        page = visit(query, width=390, height=844, kind=Lessons)
        assert page.overflow()[0] == 0
        page.press("1")
        assert page.overflow()[0] == 0
        assert page.page.locator(".st-key-lesson_nav button").last.is_visible()
        page.page.set_viewport_size({"width": 1920, "height": 1080})
        page.page.wait_for_timeout(300)
        assert page.overflow()[0] == 0


@pytest.mark.parametrize(
    "step",
    [
        "what_attention_is&step=5",
        "text_to_next_token&step=4&answers=4-1",
        "serving_masks&step=2",
        "words_and_images&step=2&answers=2-0",
    ],
)
def test_what_is_presented_fits_large_screens(visit: Visit, step: str) -> None:
    shown = visit(f"lesson={step}&present=true", height=720, kind=Lessons)
    for width in (1920, 3840):
        shown.page.set_viewport_size({"width": width, "height": width * 9 // 16})
        shown.page.wait_for_timeout(1000)  # the server receives the width and redraws
        shown.page.wait_for_function(f"() => ({STILL_FITS})()")
        assert shown.overflow() == (0, 0)


STILL_FITS = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  return document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning' &&
    main.scrollHeight === main.clientHeight;
}"""


SIZES = """() => [...document.querySelectorAll('.js-plotly-plot text')]
  .filter((text) => text.textContent && text.getBoundingClientRect().width && !text.closest('.modebar'))
  .map((text) => parseFloat(getComputedStyle(text).fontSize))"""


def test_what_is_presented_has_text_that_is_read_from_afar(visit: Visit) -> None:
    for step in (1, 3, 5):  # a head, the losses, two heads
        shown = visit(f"lesson=causal_mask&step={step}&present=true&answers={step}-0", height=720, kind=Lessons)
        page = shown.page
        for width in (1280, 1920):
            height = width * 9 // 16
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_function(
                f"least => {{ const sizes = ({SIZES})(); return sizes.length && Math.min(...sizes) >= least }}",
                arg=max(14, 0.012 * width),
            )
            assert shown.overflow()[0] == 0
            table = page.locator("[class*='st-key-numbers_of_'] button p")
            assert table.count() or step == 1
            assert [table.nth(one).evaluate("p => getComputedStyle(p).fontSize") for one in range(table.count())] == [
                "0px"
            ] * table.count(), "the words of a table's button are over the picture"
            lines = page.locator(".scatterlayer path.js-line")
            assert [lines.nth(one).evaluate("path => path.style.strokeWidth") for one in range(lines.count())] == [
                "3px"
            ] * (2 if step == 3 else 0)
            box = page.locator(".js-plotly-plot .main-svg").first.bounding_box()
            assert box["height"] > 0.55 * height or box["width"] > 0.45 * width


SMALL = """() => {
  const walker = document.createTreeWalker(document.querySelector('[data-testid=stMain]'), NodeFilter.SHOW_TEXT);
  const small = [];
  while (walker.nextNode()) {
    const { data, parentElement } = walker.currentNode;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const there = data.trim() && range.getBoundingClientRect().width > 1;
    const seen = there && !parentElement.closest('style, .modebar, .katex');
    if (seen && parseFloat(getComputedStyle(parentElement).fontSize) < 13.99) small.push(data);
  }
  return small;
}"""


def test_a_presented_summary_is_as_large_as_the_prose(visit: Visit) -> None:
    """The glossary's cards and the numbers under tokens are large too."""
    for width in (1280, 1920):
        shown = visit("lesson=causal_mask&present=true", width=width, height=width * 9 // 16, kind=Lessons)
        for part, smallest in (("ol.tokens small", 0.0115), (".card", 0.013)):
            size = shown.page.locator(part).first.evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
            assert size >= smallest * width - 0.01
        shown = visit("lesson=causal_mask&step=2&present=true", width=width, height=width * 9 // 16, kind=Lessons)
        label, key = (shown.page.locator(f".st-key-answer_0 button {part}").first for part in ("p", "kbd"))
        assert label.evaluate("one => parseFloat(getComputedStyle(one).fontSize)") >= 0.0135 * width - 0.01
        assert key.evaluate("one => getComputedStyle(one).borderTopStyle") == "solid", "it reads as part of the text"
        shown = visit("lesson=words_and_images&step=2&present=true", width=width, height=width * 9 // 16, kind=Lessons)
        scene = shown.page.locator("img.scene").bounding_box()
        assert scene["height"] >= 0.33 * width, "half of the screen is empty"
        shown = visit("lesson=causal_mask&step=6&present=true", width=width, height=width * 9 // 16, kind=Lessons)
        item = shown.page.locator(".prose li").first
        assert item.evaluate("one => parseFloat(getComputedStyle(one).fontSize)") >= 0.0152 * width
        assert shown.overflow() == (0, 0)


SCROLLED = "all => all.some((one) => one.scrollWidth > one.clientWidth)"


def test_a_student_walks_through_by_touch(browser: Browser, server: str) -> None:
    """On a phone: every lesson from its first step to its summary, with an answer to every question, then the next
    lesson; the first half of the lessons in English, the others in Chinese."""
    size = {"width": 390, "height": 844}
    phone = browser.new_context(viewport=size, has_touch=True, is_mobile=True, reduced_motion="reduce")
    tab, half = phone.new_page(), len(shelf(FOLDER, "en")) // 2
    for language, lessons in (("en", shelf(FOLDER, "en")[:half]), ("zh", shelf(FOLDER, "zh")[half:])):
        page = Lessons(tab, f"{server}/lessons?lesson={lessons[0].name}&lang={language}")
        for shelved in lessons:
            for number, step in enumerate(shelved.lesson.steps):
                where = f"{shelved.name}, {step.title}"
                assert page.title() == step.title
                if step.ask:
                    typed = tab.locator(".st-key-typed_answer input")
                    known = (shelved.name, number) == ("mask_on_a_score", 1)
                    assert not known or typed.count()
                    if typed.count():
                        typed.fill("0.74" if known else "0.5")
                    button = ".st-key-check_answer button" if typed.count() else "[class*='st-key-answer_'] button"
                    which = 0 if typed.count() else number % 2
                    page.answered(partial(typed.press, "Enter") if known else tab.locator(button).nth(which).tap)
                    text = page.verdict()
                    assert any(words in text for words in VERDICTS[language]), where
                    assert not known or "That is right." in text, where
                assert page.overflow()[0] == 0, where
                assert not tab.locator(".lesson_picture").evaluate_all(SCROLLED), where
                page.tap(".st-key-next button")
            questions = sum(step.ask is not None for step in shelved.lesson.steps)
            assert tab.locator("ol.seen li").count() == questions
            bar = [button.bounding_box() for button in tab.locator(".st-key-lesson_nav button:visible").all()]
            assert len({box["y"] for box in bar}) == 1, "one row"
            if shelved.lesson.next:
                page.tap(".st-key-next button")
    phone.close()


def test_a_slider_is_moved_by_keys_and_the_remote_goes_on(visit: Visit) -> None:
    page = visit("lesson=induction_head&step=4&present=true&answers=4-0", height=720, kind=Lessons)
    slider = page.page.locator(".st-key-lesson_training_4 input")
    slider.focus()
    page.press("ArrowRight")
    assert page.title() == "Which comes first"
    assert page.page.locator(".lesson_picture figcaption").inner_text().startswith("Step 400: ")
    track = page.page.locator(".st-key-lesson_training_4 [data-rac]").first
    page.after(lambda: track.click(position={"x": 20, "y": 10}))  # by mouse, on another training step
    page.press("PageDown")
    assert page.title() == "The bump"


def test_a_presenter_s_remote_turns_and_escape_leaves(visit: Visit) -> None:
    page = visit("lesson=what_attention_is&present=true", height=720, kind=Lessons)
    first = page.title()
    for forward, back in (("PageDown", "PageUp"), ("Space", "Shift+Space")):
        for key, there in ((forward, False), (back, True)):
            page.press(key)
            page.page.wait_for_function(AT, arg=[first, there])
    page.press("Escape")
    assert page.page.get_by_test_id("stSidebar").is_visible()
    page.page.keyboard.press("Escape")  # no effect: the listener of the presentation is removed
    page.press("PageDown")
    assert page.title() != first
    assert "present" not in page.page.url
    assert visit("present=true", height=720, kind=Lessons).page.get_by_test_id("stSidebar").is_visible(), "the list"


def test_space_switches_a_toggle_again_and_keys_that_it_does_not_use_turn_the_page(visit: Visit) -> None:
    page = visit("lesson=causal_mask", kind=Lessons)
    first, toggle = page.title(), page.page.get_by_role("switch", name="Ask before showing the answer")
    toggle.focus()
    for on in (False, True):
        page.press("Space")
        assert toggle.is_checked() == on
        assert page.title() == first
    page.press("ArrowRight")
    page.page.wait_for_function(AT, arg=[first, False])


def test_a_lesson_s_title_and_buttons_stay_in_their_place_on_the_last_step(visit: Visit) -> None:
    page, tops = visit("lesson=what_attention_is&step=5", height=720, kind=Lessons), []
    following = page.page.locator(".st-key-next button")
    for _ in range(2):
        tops.append([one.bounding_box()["y"] for one in page.page.locator(NAVIGATION).all()])
        following.focus()
        page.press("Enter")
    assert len(tops[0]) == 5
    assert tops[1] == tops[0]
    assert "lesson=text_to_next_token" in page.page.url


def test_keys_go_on_after_a_click_on_a_toggle_and_on_the_language(visit: Visit) -> None:
    page = visit("lesson=what_attention_is&step=2", height=720, kind=Lessons)
    page.after(lambda: page.page.locator(".st-key-lesson_asks label").click())
    page.press("ArrowRight")
    assert page.title() == "When a phrase comes again"
    page.after(lambda: page.page.locator(".st-key-language_switch button").last.click())
    page.press("ArrowLeft")
    assert page.title() == "一行就是一次选择"


def test_on_a_phone_two_pictures_stand_one_below_the_other_whole_and_the_query_is_named(visit: Visit) -> None:
    page = visit("lesson=causal_mask&step=5&answers=5-0", width=390, height=844, kind=Lessons).page
    page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot').length === 3")
    for chart in page.locator(".js-plotly-plot").all():
        box = chart.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    alts = page.locator(".js-plotly-plot").evaluate_all(
        "all => all.map((one) => one.closest('[aria-label]').ariaLabel)"
    )
    assert [alt.split(":")[0] for alt in alts] == ["now", "before", "difference"]
    assert alts[0].split(":")[1:] != alts[1].split(":")[1:]
    labels = page.locator(".js-plotly-plot").first.locator(".ytick text").all()
    assert any(label.is_visible() and label.text_content() == "·girl" for label in labels)


@pytest.mark.parametrize("step", ["mask_on_a_score&step=5&answers=5-1", "attention_sinks&step=6&answers=6-1"])
def test_every_column_of_a_row_of_numbers_is_on_a_phone_s_screen(visit: Visit, step: str) -> None:
    page = visit(f"lesson={step}", width=360, height=700, kind=Lessons).page
    widths = "figure => [figure.querySelector('.four').getBoundingClientRect().width, figure.clientWidth]"
    table, room = page.locator(".lesson_picture").evaluate(widths)
    assert table <= room


def test_a_word_opens_where_it_stands_and_escape_closes_it(visit: Visit) -> None:
    page = visit("lesson=what_attention_is", kind=Lessons).page
    word, card = page.locator("button.word").first, page.locator(".card").first
    word.focus()
    page.keyboard.press("Enter")
    assert card.is_visible()
    assert "One attention of a layer" in card.inner_text()
    assert card.locator("img").evaluate("image => image.naturalWidth") > 0
    page.keyboard.press("Escape")
    assert not card.is_visible()
