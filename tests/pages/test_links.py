"""Every control of every page is in the link: changing it changes the link, and opening the link restores it."""

import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest, element_tree

from model.masks import Stroke
from tests.apptest import check_tables, key_of
from tests.faults.hostile import LINKS
from tests.pages.page import Page, controls
from tests.viz.packet import unpacked
from ui.link import View
from ui.page import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("checked_soon")]  # opens every page many times

ROOT = Path(__file__).parents[2]
LINE = "The cat saw a dog and the cat ran"
ROWS = f"Once upon a time\n{LINE}"
LONG = "the cat saw a dog, " * 40

STATES: dict[str, list[dict[str, str]]] = {  # links that together show every control of a page
    "app.py": [
        {"text": ROWS}, {"text": LONG}, {"text": LINE, "by": "words"},
        *({"text": LINE, "view": view} for view in ("arcs", "bars", "why", "numbers", "span")),
    ],
    "pages/mask_lab.py": [
        {"text": ROWS},
        {"text": LONG, "section": "code"},
        {"text": LINE, "section": "hand",
         "masks": '{"sliding":4,"stride":2,"documents":"a","prefix":2,"sinks":1,"drawn":[["block",3,1,4,2]]}'},
        {"text": LINE, "section": "steps", "masks": '{"layers":[2]}', "by": "words"},
    ],
    "pages/layers.py": [
        {"text": ROWS}, *({"text": LINE, "across": across, "by": "words"} for across in ("lens", "token", "all")),
    ],
    "pages/ablation.py": [{"text": ROWS}, {"text": LINE, "way_off": "mask"}],
    "pages/compare.py": [
        *({"text": ROWS, "differs": differs} for differs in ("masks", "head", "text", "model")), {"by": "words"},
        {"text": LINE, "patching": "true", "patches": "h1.2,p1.3"},
    ],
    "pages/circuits.py": [{"text": LINE}],
    "pages/serving.py": [{"text": LINE, "serving": section} for section in ("calls", "tree", "packing", "cost")],
    "pages/head_atlas.py": [{"text": LINE}, {"text": LINE, "atlas_section": "find"}],
    "pages/padding.py": [{"text": ROWS}],
    "pages/bug_clinic.py": [{"text": ROWS}, {"text": LINE, "bug": "float-width"}],
    "pages/mask_check.py": [{"text": LINE}, {"what": "patient"}],
    "pages/export.py": [{"text": ROWS}, {"text": LINE, "picture": "span"}],
    "pages/why_causal.py": [{"text": LINE, "step": step} for step in "12345"],
    "pages/generation.py": [{"text": LINE}, {"text": LINE, "generation_section": "lift"}],
    "pages/cross_attention.py": [{"date_text": "3 May 1999\n4 June 2001"}, {"date_text": "4 June 2001"},
                                 {"date_text": "4 June 2001", "causal": "false"}],
    "pages/pixels.py": [{}, {"source": "written"}, {"part": "write"}, {"part": "finish"}],
    "pages/images.py": [{}, {"mode": "place"}, {"source": "upload"}],
    "pages/lessons.py": [{"lesson": "what_attention_is"}],
}  # fmt: skip
PAGES_BESIDE = ("app.py", "pages/padding.py")
NOT_IN_LINKS = {  # name of a choice -> why it is not in links
    "model": "another one is downloaded, or loaded for long: see test_other_models.py",
    "example": "sets the text, and forgets itself",
    "date_example": "sets the text, and forgets itself",
    "text": "only in the link that was asked for with it",
    "second": "only with the text, as is the next one",
    "drafts": "only with the text",
    "date_text": "only in the link that was asked for with it",
    "why_text": "only in the link that was asked for with it",
    "b_text": "only in the link that was asked for with it",
    "language_switch": "is in it as lang: see test_chinese.py",
    "atlas_example": "where a link below it leads, and forgotten with the head",
    "ask_first_on": "of the reader, not of the page",
    "lesson_asks": "of the reader, not of the page",
    "span_typed": "is in it as span",
    "live_text": "a text to train on: it may have 100,000 characters",
}
LAST = ("section", "view", "mode", "part", "across", "differs", "what")  # changed last: other controls are below them


class Label(str):
    """A label of a select box, passed where AppTest takes a value."""


def visit(page: str, link: dict[str, str]) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.switch_page(page)
    app.query_params.update(link)
    app.run()
    assert not app.exception
    check_tables(app)
    return app


def by_key(app: AppTest) -> dict[str, Any]:
    return {one.key: one for one in controls(app)}


def name_of(key: str) -> str:
    """Return the name of the choice that a widget shows (ui/widgets.py)."""
    return re.sub(r"_\d+$", "", key)


def change(one: Any) -> bool:
    """Set a widget to another value; return whether there is one."""
    value, kind = one.value, type(one).__name__
    labels = [Label(label) for label in getattr(one, "options", ())]
    if getattr(one, "disabled", False):
        return False
    if kind in ("Toggle", "Checkbox"):
        one.set_value(not value)
    elif kind == "SelectSlider":
        one.set_value(value - 1)
    elif isinstance(value, list):
        one.set_value([*value, labels[-1]])
    elif labels:
        others = [label for label in labels if value is None or one.format_func(value) != label]
        if others:
            one.set_value(others[0])
        return bool(others)
    elif isinstance(value, str):
        one.set_value(value + "b")
    elif isinstance(value, tuple):
        one.set_value((value[0] + 3, value[1] - 2))
    else:
        step = type(value)(one.proto.step or 1)
        one.set_value(round(value + step if value + step <= one.max else value - step, 6))
    return True


def values(app: AppTest) -> dict[str, Any]:
    return {name_of(key): one.value for key, one in by_key(app).items() if name_of(key) not in NOT_IN_LINKS}


@pytest.fixture(autouse=True)
def labels_are_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """AppTest formats the value that a select box is set to; a Label is already formatted."""
    known = element_tree._format_value_for_widget
    monkeypatch.setattr(element_tree, "_format_value_for_widget",
                        lambda make, value: value if isinstance(value, Label) else known(make, value))  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_every_control_is_in_the_link(page: str) -> None:
    found: set[str] = set()
    for link in STATES[page]:
        while left := set(values(app := visit(page, link))) - found:
            for name in sorted(left, key=lambda name: (name.endswith(LAST), name)):
                shown = {name_of(key): one for key, one in by_key(app).items()}
                if name not in shown:
                    continue  # another choice has hidden it: the next visit changes it
                found.add(name)
                before = dict(app.query_params)
                if change(shown[name]):
                    app.run()
                    assert not app.exception, name
                    assert dict(app.query_params) != before, f"{name} is not in the link"
            texts = {key: value for key, value in link.items() if key.endswith("text")}  # texts leave it by design
            again = visit(page, texts | {key: app.query_params[key] for key in app.query_params})
            assert values(again) == values(app)
            assert dict(again.query_params).items() >= dict(app.query_params).items()
            chosen = values(app)
            app.switch_page(PAGES_BESIDE[page == PAGES_BESIDE[0]]).run()
            assert values(app.switch_page(page).run()) == chosen


@pytest.mark.parametrize("page", PAGES)
def test_a_link_of_nonsense_is_a_link_of_nothing(page: str) -> None:
    names = {field.alias or name for name, field in LINKS[page].model_fields.items()}
    lists = {"heads_off", "b_off"}  # for which nonsense gives an empty list
    odd = dict.fromkeys(
        sorted(names - lists - {"model", "text", "b_text", "date_text", "chunks", "branching", "second", "drafts"}),
        "<no such>",
    )
    assert values(visit(page, odd)) == values(visit(page, {}))


@pytest.mark.parametrize(
    ("view", "component", "sent"),
    [
        ("tokens", "unmask_tokens", {"values": True}),
        ("arcs", "unmask_arcs", {"least": 0.25, "hide_first": True}),
        ("tokens", "unmask_overview", {"by": ["induction", True]}),
    ],
)
def test_what_a_link_says_of_a_view_is_drawn(view: str, component: str, sent: dict[str, Any]) -> None:
    link = {"values": "true", "least": "0.25", "hide_first": "true", "dim": "induction", "dim_sorted": "true"}
    app = visit("app.py", {"text": LINE, "view": view} | link)
    (packet,) = [one.proto.bytes for one in app.get("bidi_component") if one.proto.component_name == component]
    header, _ = unpacked(packet)
    assert {name: header[name] for name in sent} == sent
    assert dict(app.query_params).items() >= link.items()


@pytest.mark.parametrize(
    ("page", "link", "left_out"),
    [
        (
            "pages/generation.py",
            {"text": LINE},
            "the text. Links do not contain generated tokens: they open the page with",
        ),
        ("pages/why_causal.py", {}, "the text. Links do not contain the text to train on."),
        ("pages/head_atlas.py", {"text": LINE}, "the text. Links do not contain uploaded files."),
        ("pages/images.py", {}, "All settings of this page. Links do not contain uploaded files."),
        ("pages/pixels.py", {}, "All settings of this page. Links do not contain drawn digits."),
        ("pages/compare.py", {"text": LINE}, "the text. Links do not contain uploaded files."),
        ("pages/export.py", {"text": LINE}, "the text. Links do not contain uploaded files."),
        ("pages/mask_lab.py", {"text": LINE}, "Links do not contain uploaded files or the numbers of Compute by hand."),
        ("app.py", {"text": LINE}, "All settings of this page, without the text."),
    ],
)
def test_what_no_link_has_is_said_above_the_link(page: str, link: dict[str, str], left_out: str) -> None:
    app = visit(page, link)
    app.session_state["link"] = True  # the expander is open
    (caption,) = [one.value for one in app.run().caption if one.value.startswith("All settings")]
    assert left_out in caption
    assert ("Links do not" in caption) == ("Links do not" in left_out)


def test_a_drawing_that_is_switched_off_is_in_the_link() -> None:
    drawn = {"masks": '{"drawn":[["block",3,1,4,2]]}', "drawing": "false"}
    app = visit("pages/mask_lab.py", {"text": LINE} | drawn)
    assert app.session_state.mask_drawn == (Stroke("block", 3, 1, 4, 2),)
    assert by_key(app)[key_of(app, "mask_drawn_on")].value is False
    assert dict(app.query_params).items() >= drawn.items()


@pytest.mark.parametrize(
    ("choice", "chosen", "page", "other", "there", "shown"),
    [
        ("section", "steps", "pages/mask_lab.py", "pages/export.py", {"head": 3}, "Picture"),
        ("attention", "cross", "app.py", "pages/ablation.py", {"causal": False}, "decoder"),
        ("by", "words", "app.py", "pages/generation.py", {"head": 3}, None),
    ],
)
def test_a_choice_outlives_a_page_that_cannot_show_it_even_if_something_is_chosen_there(
    choice: str, chosen: str, page: str, other: str, there: dict[str, Any], shown: str | None
) -> None:
    """Steps are a section of the Mask Lab, not of Export; Ablation has no cross-attention, and Generation does not
    merge tokens into words."""
    texts = {"model": "dates", "text": "7 Aug 1999", "target": "1999-08-07"} if choice == "attention" else {}
    visit = Page(**texts, **{choice: chosen}).go(page).go(other).set(**there)
    if shown:
        assert visit.value(choice) == shown
    assert visit.go(page).value(choice) == chosen


OF_EXPLORE = {"model": "induction", "layer": "0", "head": "3", "row": "2", "view": "bars", "query": "3",
              "zoom": "2-5,1-4", "scope": "layer", "causal": "false", "padding": "false",
              "palette": "magma"}  # fmt: skip


def test_back_brings_an_earlier_puzzle() -> None:
    page = Page().go("pages/bug_clinic.py").run().set(mode="spot")
    before, question = page.url, page["spot"]["asked"]
    assert page.press("another").url["puzzle"] != before["puzzle"]
    page.app.query_params.clear()
    page.app.query_params.update(before)  # as the browser reruns the page when it goes back
    assert page.run()["spot"]["asked"] == question
    assert page.url == before


@pytest.mark.parametrize(
    ("script", "choice", "values"),
    [
        ("pages/mask_lab.py", "shown", ("change",)),
        ("pages/layers.py", "across", ("token",)),
        ("pages/ablation.py", "way_off", ("mean",)),
        ("pages/compare.py", "differs", ("head",)),
        ("pages/circuits.py", "circuit_tokens", ("text",)),
        ("pages/serving.py", "chunks", ("3",)),
        ("pages/head_atlas.py", "atlas_section", ("find",)),
        ("pages/padding.py", "padding_mask", ("off",)),
        ("pages/bug_clinic.py", "bug_on", (False,)),
        ("pages/mask_check.py", "patient", ("pads", "sound")),
        ("pages/generation.py", "seed", (3,)),
        ("pages/cross_attention.py", "cross_causal", (False,)),
    ],
)
@pytest.mark.usefixtures("checked_here")
def test_back_keeps_the_choices_of_other_pages(script: str, choice: str, values: tuple[Any, ...]) -> None:
    page = Page(text=ROWS, **OF_EXPLORE)
    page.app.query_params.clear()  # as the sidebar's link does
    page.go(script).run()
    kept = {name: value for name, value in page["kept"].items() if value is not None}
    kept.pop("positions_of", None)  # positions of a link are used as they are
    if choice == "patient":
        page.set(what="patient")
    for value in values:
        before, was = page.url, page[choice]
        page.set(**{choice: value})
        assert page.url != before
    page.app.query_params.clear()
    page.app.query_params.update(before)  # as the browser reruns the page when it goes back
    assert page.run()[choice] == was
    page.app.query_params.clear()
    assert page.go("app.py")["kept"].items() >= kept.items()
    shown = {"model": "induction", "layer": 0, "head": 3, "view": "bars", "causal": False, "palette": "magma"}
    assert {name: page[name] for name in shown} == shown


@pytest.mark.parametrize("page", [page for page in LINKS if "controls.open_" in (ROOT / page).read_text()])
def test_a_page_s_own_choices_have_names_in_its_link_that_no_shared_choice_has(page: str) -> None:
    own = {LINKS[page].model_fields[name].alias or name for name in LINKS[page].own()}
    assert own.isdisjoint(View.model_fields), "in a new session they would set the shared choices too"


def test_back_to_another_model_brings_none_of_this_one_s_choices() -> None:
    page = Page(text=LINE).go("pages/circuits.py")
    before = page.url
    page.set(model="induction").go("app.py").set(causal=False, layer=1)
    page.go("pages/circuits.py").app.query_params.clear()
    page.app.query_params.update(before)
    page.run()
    assert (page["model"], page["causal"], page["layer"]) == ("story", None, 4)


def test_masks_of_a_link_to_the_mask_lab_are_those_of_the_page_after_it() -> None:
    page = Page(text=LINE)
    page.app.query_params.update(masks='{"causal":false,"layers":[2],"heads":[3]}', text=LINE)
    page.go("pages/mask_lab.py")
    assert not page.value("causal")
    page.app.query_params.clear()
    page.go("app.py")
    assert (page.value("causal"), page.value("layer"), page.value("head")) == (False, 2, 3)


def test_masks_of_the_mask_lab_outlive_back() -> None:
    page = Page(text=LINE, causal="false").go("pages/mask_lab.py")
    before = page.url
    page.set(shown="change").app.query_params.clear()
    page.app.query_params.update(before)
    assert page.run()["causal"] is False
    page.app.query_params.clear()
    page.app.query_params.update(causal="false")  # Back once more
    assert page.go("pages/layers.py")["causal"] is False
    assert page.url["causal"] == "false"
