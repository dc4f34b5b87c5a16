"""Tests of every page, in both languages, on a phone and in both themes: nothing is cut off or inaccessible.

axe-core's rules (contrast, names, roles) must find nothing serious. A page is opened once, and its language switched
there: opening it takes longest."""

from collections.abc import Callable, Iterable
from pathlib import PurePath
from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import expect

from i18n import LANGUAGES
from tests.browser.axe import SIDEWAYS, serious, violations
from tests.browser.explore import POLLING, Explore
from ui.circuits.patching import PAIR
from ui.page import PAGES

Visit = Callable[..., Explore]
PATHS = ["" if path == "app.py" else PurePath(path).stem for path in PAGES]
STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const still = app?.dataset.testScriptState === 'notRunning' && !document.querySelector('[data-testid=stSpinner]');
  const charts = [...document.querySelectorAll('.chart')];
  const there = document.querySelector('h3') && charts.every((chart) => chart.ariaBusy === 'false');
  return still && there ? document.querySelector('[data-testid=stMain]').innerText : null;
}"""
FITS = "() => (main => main.scrollWidth <= main.clientWidth)(document.querySelector('[data-testid=stMain]'))"
ABOVE = """() => [...document.querySelectorAll('.js-plotly-plot:has(.legend)')].every((chart) => {
  const [legend, plot] = ['.legend', '.nsewdrag'].map((part) => chart.querySelector(part)?.getBoundingClientRect());
  return plot && legend.bottom <= plot.top; })"""
EXPORT = {"en": "Export", "zh": "导出"}
SOONER = {"mask_check": "&what=patient"}  # faster: check a small module instead of a model
PHONE, LARGE = {"width": 390, "height": 844}, {"width": 1920, "height": 1080}
KINDS = {path: type("AnyPage", (Explore,), {"PATH": path, "STATE": STATE}) for path in PATHS}


@pytest.mark.parametrize(("path", "first"), [(path, index % 2) for index, path in enumerate(PATHS)])
def test_as_it_opens_on_a_phone_and_as_a_larger_window_shows_it(visit: Visit, path: str, first: int) -> None:
    """Opened by a link in one language, then switched to the other; pages alternate between English and Chinese first.
    A large window, which has more room than one of 1280 pixels, is tested in the first language only."""
    language, other = sorted(LANGUAGES)[first], sorted(LANGUAGES)[1 - first]
    page = visit(f"lang={language}{SOONER.get(path, '')}", kind=KINDS[path], **PHONE)
    assert page.page.get_by_test_id("stExpandSidebarButton").is_visible()  # the sidebar starts closed
    fits_a_phone(page)
    page.page.set_viewport_size(LARGE)
    page.page.get_by_role("link", name=EXPORT[language], exact=True).wait_for()  # the sidebar opens where there is room
    assert not page.sticks_out()
    found = faults(page, page.looks(1280), {"1280 light": {"others": False}, "1280 dark": {"others": False}})

    page.after(lambda: page.page.get_by_role("radio", name=LANGUAGES[other], exact=True).click())
    found += faults(page, page.looks(1280, schemes=("dark",)), {"1280 dark": {"colours": False}})
    fits_a_phone(page)
    assert not found


@pytest.mark.parametrize("section", ["tree", "packing", "streaming&stream_tokens=100", "cost&tokens=32768&block=16"])
def test_the_sections_of_the_serving_page(visit: Visit, section: str) -> None:
    page = visit(f"serving={section}", kind=KINDS["serving"])
    assert not faults(page, page.looks(1280), {"1280 light": {}, "1280 dark": {"others": False}})
    fits_a_phone(page)
    page.page.wait_for_function(ABOVE, polling=POLLING)  # legends have several lines here


@pytest.mark.parametrize(
    ("path", "query"), [("compare", "by=words&differs=text"), ("mask_lab", "by=words"), ("layers", "")]
)
def test_merged_tokens(visit: Visit, path: str, query: str) -> None:
    long = quote("Once upon a time a little girl named Lily ran over the bridge. " * 2)
    page = visit(query or f"by=sentences&text={long}", kind=KINDS[path])
    assert not faults(page, page.looks(1280), {"1280 light": {}, "1280 dark": {"others": False}})
    assert path != "layers" or page.page.locator("table.lens td").first.is_visible(), "beside its sentence"
    fits_a_phone(page)


def test_a_row_of_a_trees_mask_rings_what_it_sees(visit: Visit) -> None:
    page = visit("serving=tree&branching=2,1", kind=KINDS["serving"]).page  # the nodes 0 and 2, then 1 and 3 below them
    mask = page.locator(".st-key-tree_mask .nsewdrag").first
    rings = "() => document.querySelector('.st-key-tree .js-plotly-plot').data.at(-1).marker.line.width.join('')"
    assert page.evaluate(rings) == "03000"
    box = mask.bounding_box()
    mask.hover(position={"x": 9, "y": box["height"] - 3})
    page.wait_for_function(f"() => ({rings})() === '00033'")
    page.mouse.move(1, 1)
    page.wait_for_function(f"() => ({rings})() === '03000'")
    page.evaluate("""() => { const mask = document.querySelector('.st-key-tree_mask .js-plotly-plot');
      const row = mask.layout.meta.rings.rows.length - 4; // a tap is a click without a hover
      mask.emit('plotly_click', { points: [{ pointNumber: [row, 0] }] }); }""")
    page.wait_for_function(f"() => ({rings})() === '03300'")


def fits_a_phone(page: Explore) -> None:
    page.page.set_viewport_size(PHONE)
    assert page.page.locator("h3").first.is_visible()
    page.page.wait_for_function(FITS, polling=POLLING)  # a chart is resized a moment after its window
    assert violations(page, only=SIDEWAYS) == []


def faults(page: Explore, looks: Iterable[str], rules: dict[str, dict[str, bool]]) -> list[str]:
    """Return what is cut off or sticks out in any of these looks, and the serious violations in the looks of `rules`.

    rules: look -> which of axe-core's rules to run, as arguments of `serious`."""
    found = []
    for look in looks:
        found += [f"{look}: {words}" for words in page.cut_off()] + [f"{look}: sticks out"] * page.sticks_out()
        found += [f"{look}: {words}" for words in (serious(page, **rules[look]) if look in rules else [])]
    return found


@pytest.mark.parametrize(
    ("path", "query", "labels"),
    [
        ("head_atlas", "", ".st-key-causal"),
        ("bug_clinic", "mode=spot", "[class*=st-key-candidate_]"),
        ("padding", "", "[data-testid=stMain] [data-testid=stButton]"),
    ],
)
def test_labels_are_whole_beside_the_sidebar_of_a_narrow_window(
    visit: Visit, path: str, query: str, labels: str
) -> None:
    found = visit(query, kind=KINDS[path], width=820, height=900).page.locator(labels)
    assert found.count()
    cut = """all => all.flatMap((one) => [...one.querySelectorAll('p')]).map((words) => words.parentElement)
      .filter((label) => label.scrollWidth > label.clientWidth + 1).map((label) => label.innerText)"""
    assert found.evaluate_all(cut) == []


def test_a_cell_of_activation_patching_is_patched_when_it_is_clicked(visit: Visit) -> None:
    page = visit("differs=text&patching=true", kind=KINDS["compare"])
    assert not faults(page, page.looks(1280), {"1280 light": {}, "1280 dark": {"others": False}})
    click = """() => { const chart = document.querySelector('.st-key-patch_map .js-plotly-plot');
      chart.emit('plotly_click', { points: [{ x: 'H3', y: 'L4', customdata: [4, 3], pointNumber: [4, 3] }] }); }"""
    page.after(lambda: page.page.evaluate(click))
    assert page.page.get_by_text("L4 H3", exact=True).first.is_visible()
    assert "patches=h4.3" in page.page.url
    plot = page.page.locator(".st-key-patch_map .nsewdrag")
    plot.hover()  # shows plotly's buttons
    buttons = page.page.locator(".st-key-patch_map .modebar").bounding_box()
    assert buttons["y"] + buttons["height"] <= plot.bounding_box()["y"], "they cover cells"
    fits_a_phone(page)


def test_two_texts_of_equal_length_are_both_taken(visit: Visit) -> None:
    """The button is in a fragment, the widget of A's text is outside of it."""
    page = visit("differs=text&patching=true&text=The bird sang&b_text=The king sang well", kind=KINDS["compare"])
    page.page.get_by_role("button", name="Use two texts of equal length").click()
    expect(page.page.get_by_text("Measured in A: ")).to_be_visible()
    assert page.page.get_by_label("Text, one sequence per line").input_value() == PAIR["text"]
    assert page.page.get_by_label("B's text").input_value() == PAIR["b_text"]


@pytest.mark.parametrize(
    ("path", "query", "field", "link"),
    [
        ("mask_lab", 'masks={"sliding":3}', "Sliding window", '"sliding":6'),
        ("serving", "", "Cached prefix", "cached=6"),
        ("generation", "", "Seed", "seed=6"),
    ],
)
def test_a_number_that_is_typed_is_taken(visit: Visit, path: str, query: str, field: str, link: str) -> None:
    page = visit(query, kind=KINDS[path])
    number = page.page.get_by_role("spinbutton", name=field)
    number.fill("6")
    page.after(lambda: number.press("Enter"))
    assert link in unquote(page.page.url)
    assert number.input_value() == "6"
