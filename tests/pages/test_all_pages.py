"""Every page: it opens, a rerun computes nothing again, and choices are kept until the user comes back."""

from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.explore import Explore
from ui import results
from ui.page import PAGES

pytestmark = pytest.mark.usefixtures("checked_soon")

ROOT = Path(__file__).parents[2]
TEXT = "The cat saw a dog\nOnce upon a time there was a cat"
WITHOUT_MODEL = ("pages/why_causal.py", "pages/pixels.py", "pages/images.py", "pages/lessons.py")
OWN_TEXT = (
    "pages/pixels.py",
    "pages/images.py",
    "pages/lessons.py",
    "pages/padding.py",
    "pages/head_atlas.py",
    "pages/circuits.py",
)
OTHERS = [name for name in PAGES if name != "app.py"]


def opened(name: str, **query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.switch_page(name)
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def shown(app: AppTest) -> int:
    return sum(len(app.get(kind)) for kind in ("bidi_component", "html", "image"))


def test_every_page_is_in_the_navigation() -> None:
    assert set(PAGES) == {"app.py", *(f"pages/{path.name}" for path in (ROOT / "pages").glob("*.py"))} - {
        "pages/obey.py"
    }


def test_the_old_address_of_mask_check_leads_to_it_with_its_choices() -> None:
    app = opened("pages/obey.py", what="patient", patient="pads")
    assert app.markdown[0].value.startswith("### Mask check")
    assert app.selectbox(key="patient").value == "pads"
    assert app.query_params["patient"] == "pads"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_with_something_and_a_rerun_computes_and_draws_nothing_anew(name: str) -> None:
    app = opened(name)
    assert not app.error
    assert shown(app) > 2
    before = results.result_cache().nbytes()
    app.run()
    assert results.result_cache().nbytes() == before > 0


@pytest.mark.parametrize("name", PAGES)
def test_a_page_without_a_text_says_which_it_is_and_asks_for_one(name: str) -> None:
    app = opened(name, text=" ", date_text=" ")
    titles = [one.value for one in app.main.markdown if one.value.startswith("### ")]
    assert titles[0].startswith(f"### {PAGES[name][0]}")
    if name not in OWN_TEXT:
        assert any("Type " in one.value for one in [*app.info, *app.caption])


def test_explore_is_as_it_was_after_all_other_pages() -> None:
    page = Explore(text=TEXT, row="2", layer="2", head="3", pad="right").set(causal=False)
    weights = page.weights()
    for name in OTHERS:
        page.go(name)
    page.go("app.py")
    assert page["text"] == TEXT
    assert (page["row"], page["layer"], page["head"], page["pad"], page["causal"]) == (2, 2, 3, "right", False)
    np.testing.assert_array_equal(page.weights(), weights)


@pytest.mark.parametrize("name", [name for name in PAGES if name not in WITHOUT_MODEL])
def test_a_model_that_cannot_be_had_is_a_sentence_and_the_page_goes_on(name: str) -> None:
    app = opened(name, model="/no/such/folder")
    assert any("/no/such/folder" in error.value.replace("\\", "") for error in app.error)
    assert shown(app) > 2
