"""The Serving page: its sections draw and say what the model computes, and take what is typed.

python -m pytest tests/pages/test_serving.py
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from model import catalog
from model.inference.calls import compare_calls, ends_of
from model.inference.cost import cost
from model.inference.packing import pack
from tests.pages.explore import Explore, array
from tests.pages.test_mask_lab import Lab
from viz import inference as pictures

ROOT = Path(__file__).parents[2]
TEXT = "Once upon a time there was a cat. A dog ran to it"


class Serving(Explore):
    """One reader's page."""

    def __init__(self, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
        self.app.switch_page("pages/serving.py")
        self.app.query_params.update({"text": TEXT} | query)
        self.run()

    def cells(self, key: str) -> np.ndarray:
        """float [rows,columns] of a picture of cells, NaN where there is none."""
        return array(self.figures()[key]["data"][0]["z"])

    def sentence(self) -> str:
        return next(one.value for one in self.app.get("html") if 'class="sentence"' in one.value)


def test_calls_are_drawn_as_they_were_computed() -> None:
    story = catalog.load("story")
    batch = story.encode([TEXT])
    count = batch.ids.shape[1]
    page = Serving(chunks="3", cached="4")
    found = compare_calls(story, batch, story.standard, ends_of(count, 3, 4))
    shown = page.cells("calls_cells")
    np.testing.assert_array_equal(np.isnan(shown), found.cells < 0)
    np.testing.assert_array_equal(shown[found.cells >= 0], found.cells[found.cells >= 0] % len(pictures.CALLS))
    assert f"{count * (count + 1) // 2:,} cells, each once" in page.sentence()
    assert "One call computes" in Serving(chunks=str(count)).sentence()
    page.app.button_group(key="align").set_value("top-left")
    page.run()
    wrong = compare_calls(story, batch, story.standard, ends_of(count, 3, 4), "top-left")
    assert f"leave out {wrong.missed:,} of the cells" in page.sentence()
    assert (page.cells("calls_cells") >= 0).sum() == wrong.computed
    assert page.app.query_params["align"] == "top-left"


def test_a_draft_tree() -> None:
    page = Serving(serving="tree", branching="3, 1")
    assert "verifies 6 tokens, and each has the logits of its own branch" in page.sentence()
    tokens = catalog.load("story").encode([TEXT]).ids.shape[1]
    mask = page.cells("tree_mask")
    assert mask.shape == (tokens + 6, tokens + 6)
    assert mask[tokens:, tokens:].sum() == 9  # each node itself, and three of them their parent
    page.app.button_group(key="stand").set_value("row")
    page.run()
    assert "with other logits than each branch run alone" in page.sentence()


def test_packing_and_what_cannot_be_packed() -> None:
    story = catalog.load("story")
    found = pack(story, story.encode([TEXT]), ".")
    page = Serving(serving="packing", separator=".")
    bars = page.figures()["packing"]["data"]
    for trace, losses in zip(bars, [found.alone, *found.packed.values()], strict=True):
        np.testing.assert_allclose(array(trace["y"]), losses)
    assert "logits of each document alone with: mask and position ids." in page.sentence()
    page.app.text_input(key="separator").set_value("#")
    page.run()
    assert "“#” does not split it" in page.app.error[0].value


def test_the_cost_of_a_mask_follows_its_controls() -> None:
    page = Serving(serving="cost", tokens="1000", block="64", cost_masks='{"causal": true, "sliding": 100}')
    found = cost({"sliding": 100}, 1000, 64)
    np.testing.assert_array_equal(page.cells("cost_blocks"), found.blocks)
    numbers = [one.value for one in page.app.get("html") if "full blocks" in one.value]
    assert f"{found.partial:,} / 256" in numbers[0]
    page.app.toggle(key="cost_causal_0").set_value(False)
    page.run()
    np.testing.assert_array_equal(page.cells("cost_blocks"), cost({"causal": False, "sliding": 100}, 1000, 64).blocks)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"chunks": "8,,3"}, "expected whole numbers with commas"),
        ({"chunks": "3, 3"}, "tokens together, got 3, 3"),
        ({"cached": "5000"}, "expected a prefix from 0 to"),
        ({"serving": "tree", "branching": "9, 9, 9"}, "expected 1 to 64 nodes"),
        ({"serving": "cost", "cost_masks": "no"}, "expected a mask as JSON"),
    ],
)
def test_what_makes_no_sense_is_said(query: dict[str, str], words: str) -> None:
    assert words in Serving(**query).app.error[0].value


def test_many_blocks_are_drawn_as_fewer() -> None:
    found = cost({"causal": True}, 32_768, 16)
    shown = array(pictures.blocks_figure(found).to_dict()["data"][0]["z"])
    assert shown.shape == (256, 256)
    np.testing.assert_array_equal(np.diag(shown), 1)
    assert shown[200, 3] == 2
    assert shown[3, 200] == 0


def test_the_mask_lab_names_a_mask_and_runs_it() -> None:
    page = Lab(section="name")
    tokens = len(page.weights())
    query, key = np.indices((tokens, tokens))
    mask = (key <= query) & (query - key < 3) & ((query != 7) | (key != 6))
    page.app.text_area(key="named_mask").set_value(str(torch.from_numpy(mask)) if tokens < 30 else repr(mask))
    page.run()
    assert any(
        "causal mask and window of 3. 1 cell (query, key) differs: (7, 6)" in one.value for one in page.app.markdown
    )
    next(button for button in page.app.button if "Run this mask" in button.label).click()
    page.run()
    np.testing.assert_array_equal(np.isnan(page.weights()), ~mask)
    assert page.url["masks"].startswith('{"sliding":3')


def test_the_mask_lab_says_what_is_no_mask() -> None:
    page = Lab(section="name")
    page.app.text_area(key="named_mask").set_value("tensor([[1., 0., ..., 0.]])")
    page.run()
    assert "set_printoptions" in page.app.error[0].value


def test_the_mask_lab_tells_what_kernels_give_an_empty_row() -> None:
    tables = [one.value for one in Lab(section="fill").app.get("html") if "eager softmax" in one.value]
    assert tables[0].count("NaN") == 3
