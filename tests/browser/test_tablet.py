"""Tests of pages on a tablet, where the open sidebar takes 290 pixels of the window: no column cuts anything off."""

from collections.abc import Callable

import pytest

from tests.browser.explore import Explore
from tests.browser.test_every_page import KINDS

Visit = Callable[..., Explore]
ROOMS = '[class*="st-key-one_"], [class*="st-key-pair_"], [class*="st-key-two_"], figure.lesson_picture'
CUT = """pictures => {
  const main = document.querySelector('[data-testid=stMain]');
  const all = (selector) => [...main.querySelectorAll(selector)].filter((element) => element.clientWidth);
  const lines = (word) => new Set([...word.getClientRects()].map((box) => Math.round(box.top))).size;
  const words = (element) => {
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), found = [];
    while (texts.nextNode()) for (const { 0: { length }, index } of texts.currentNode.data.matchAll(/[A-Za-z]+/g)) {
      const word = document.createRange();
      word.setStart(texts.currentNode, index);
      word.setEnd(texts.currentNode, index + length);
      found.push(word);
    }
    return found;
  };
  const segments = '[data-testid=stButtonGroup] > [role]';
  const boxes = { select: '[data-testid=stSelectbox] input', segments, picture: pictures };
  return [
    ...Object.entries(boxes).flatMap(([kind, selector]) => all(selector)
      .filter((box) => box.scrollWidth > box.clientWidth + 1)
      .map((box) => `${kind} ${box.value ?? box.className}: ${box.scrollWidth} in ${box.clientWidth}`)),
    ...all('h3, h4').flatMap(words).filter((word) => lines(word) > 1).map((word) => `title ${word}`),
  ];
}"""
SHOWN = {  # (page, query) -> the least number of pictures on it to check, besides words
    ("", ""): 1,
    ("", "causal=false"): 1,
    ("compare", ""): 2,
    ("mask_lab", ""): 2,
    ("mask_lab", "section=steps"): 2,
    ("cross_attention", "model=dates"): 2,
    ("bug_clinic", ""): 1,
    ("images", ""): 1,
    ("head_atlas", ""): 0,
    ("circuits", ""): 0,
    ("serving", ""): 0,
    ("lessons", ""): 0,
    ("lessons", "lesson=causal_mask&step=5&answers=5-0"): 1,
    ("lessons", "lesson=causal_mask&step=5&answers=5-0&present=true"): 1,
    ("lessons", "lesson=induction_head&step=4&answers=4-0"): 1,
    ("lessons", "lesson=induction_head&step=4&answers=4-0&present=true"): 1,
    ("lessons", "lesson=mask_on_a_score&step=3&answers=3-0"): 1,
    ("lessons", "lesson=mask_on_a_score&step=3&answers=3-0&present=true"): 1,
}


@pytest.mark.parametrize(("path", "query"), SHOWN)
def test_selects_segments_titles_and_pictures_are_whole(visit: Visit, path: str, query: str) -> None:
    page = visit(query, kind=KINDS[path], width=1024, height=900)
    if SHOWN[path, query]:
        page.page.wait_for_function(
            "([rooms, least]) => document.querySelectorAll(rooms).length >= least", arg=[ROOMS, SHOWN[path, query]]
        )
    assert page.page.locator("[data-testid=stMain] :is(h3, h4)").count()
    found = [
        f"{look}: {one}" for look in page.looks(1024, 820, schemes=("light",)) for one in page.page.evaluate(CUT, ROOMS)
    ]
    assert not found


def test_what_is_cut_off_is_found(visit: Visit) -> None:
    page = visit(kind=KINDS["compare"], width=1024, height=900).page
    page.wait_for_function("rooms => document.querySelectorAll(rooms).length >= 2", arg=ROOMS)
    assert page.evaluate(CUT, ROOMS) == []
    page.add_style_tag(
        content="""[data-testid=stMain] :is(h3, h4) { width: 1em; word-break: break-all }
      [data-testid=stMain] [data-testid=stSelectbox] input {
        flex: none !important; width: 4px !important; min-width: 0 !important }
      [data-testid=stButtonGroup] > [role] { width: 20px !important; flex-wrap: nowrap !important }
      [class*="st-key-one_"] { width: 20px !important; min-width: 0 !important }"""
    )
    assert {words.split()[0] for words in page.evaluate(CUT, ROOMS)} == {"title", "select", "segments", "picture"}


def test_a_lessons_button_is_one_line_on_a_tablet(visit: Visit) -> None:
    labels = visit(kind=KINDS["lessons"], width=820).page.locator("[data-testid=stMain] [data-testid=stButton] p")
    heights = labels.evaluate_all(
        "all => all.map((label) => label.clientHeight / parseFloat(getComputedStyle(label).lineHeight))"
    )
    assert len(heights) >= 12
    assert max(heights) < 1.5


def test_heads_stand_beside_each_other_where_there_is_room(visit: Visit) -> None:
    """Only what has no room in its column takes a row of its own."""
    page = visit(kind=KINDS["compare"], width=1024, height=900)
    top = "element => element.getBoundingClientRect().top"
    tops = {}
    for look in page.looks(1024, 820, schemes=("light",)):
        tops[look] = [page.page.locator(f".st-key-one_head_{side}").evaluate(top) for side in "ab"]
    assert tops["1024 light"][0] == tops["1024 light"][1]
    assert tops["820 light"][0] < tops["820 light"][1]
