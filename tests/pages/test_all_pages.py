"""Every page: each opens, and a rerun repeats nothing; what was chosen on one is there when it is seen again."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.explore import Explore
from tests.pages.here import Here
from ui import mask_check, results
from ui.page import PAGES

ROOT = Path(__file__).parents[2]
TEXT = "The cat saw a dog\nOnce upon a time there was a cat"
OTHERS = [name for name in PAGES if name != "app.py"]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mask check's too."""
    monkeypatch.setattr(mask_check, "Background", Here)


def visit(page: Explore, name: str) -> None:
    page.app.switch_page(name)
    page.run()


def test_every_page_is_in_the_navigation() -> None:
    assert set(PAGES) == {"app.py", *(f"pages/{path.name}" for path in (ROOT / "pages").glob("*.py"))} - {
        "pages/obey.py"
    }


def test_the_old_address_of_mask_check_leads_to_it_with_its_choices() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.query_params.update(what="patient", patient="pads")
    app.switch_page("pages/obey.py")
    app.run()
    assert not app.exception
    assert app.markdown[0].value.startswith("### Mask check")
    assert app.selectbox(key="patient").value == "pads"
    assert app.query_params["patient"] == "pads"


@pytest.mark.parametrize("name", OTHERS)
def test_a_page_opens_at_its_own_address_and_shows_something(name: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.switch_page(name)
    app.run()
    assert not app.exception
    assert not app.error
    kinds = ("plotly_chart", "bidi_component", "html", "image")
    assert sum(len(app.get(kind)) for kind in kinds) > 2


@pytest.mark.parametrize("name", PAGES)
def test_a_rerun_with_nothing_changed_computes_and_draws_nothing_anew(name: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.switch_page(name)
    app.run()
    before = results.result_cache().nbytes()
    app.run()
    assert results.result_cache().nbytes() == before > 0


@pytest.mark.parametrize("name", PAGES)
def test_a_page_without_a_text_says_which_it_is(name: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.switch_page(name)
    app.query_params["text"] = " "
    app.run()
    assert not app.exception
    titles = [one.value for one in app.main.markdown if one.value.startswith("### ")]
    assert titles[0].startswith(f"### {PAGES[name][0]}")


@pytest.mark.parametrize("name", OTHERS)
def test_explore_is_as_it_was_after_another_page(name: str) -> None:
    page = Explore(text=TEXT, row="2", layer="2", head="3", pad="right").switch("causal", False)
    weights = page.weights()
    for _ in range(2):
        visit(page, name)
        page.run()
    visit(page, "app.py")
    assert page["text"] == TEXT
    assert (page["row"], page["layer"], page["head"], page["pad"], page["causal"]) == (2, 2, 3, "right", False)
    assert (page.weights() == weights).sum() == (weights == weights).sum()
