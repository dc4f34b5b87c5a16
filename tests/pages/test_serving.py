"""The Serving page: its sections show what the model computes, and handle whatever is typed.

python -m pytest tests/pages/test_serving.py
"""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pypdf import PdfReader
from streamlit.testing.v1 import AppTest

import unmask
from model import catalog
from model.inference.calls import compare_calls, ends_of
from model.inference.cost import cost
from tests.pages.explore import Explore, array
from tests.pages.test_mask_lab import Lab
from tests.viz.export.test_picture import texts
from ui.export import printed
from viz import inference
from viz.export import fonts
from viz.export.chart import as_csv, chart_picture
from viz.export.paper import Paper

ROOT = Path(__file__).parents[2]
TEXT = "Once upon a time there was a cat. A dog ran to it"


class Serving(Explore):
    """One user's Serving page."""

    def __init__(self, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
        self.app.switch_page("pages/serving.py")
        self.app.query_params.update({"text": TEXT} | query)
        self.run()

    def cells(self, key: str) -> np.ndarray:
        """Return the cells of a heatmap, float [rows,columns], NaN where there is none."""
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
    np.testing.assert_array_equal(shown[found.cells >= 0], found.cells[found.cells >= 0] % len(inference.CALLS))
    assert f"{count * (count + 1) // 2:,} cells of the first layer, each once" in page.sentence()
    assert "One call computes" in Serving(chunks=str(count)).sentence()
    page.app.button_group(key="align").set_value("top-left")
    page.run()
    wrong = compare_calls(story, batch, story.standard, ends_of(count, 3, 4), "top-left")
    assert f"leave out {wrong.missed:,} of the first layer's cells that one call computes" in page.sentence()
    assert "and compute 0 that it does not" in page.sentence()
    assert (page.cells("calls_cells") >= 0).sum() == wrong.computed
    assert page.app.query_params["align"] == "top-left"


def test_a_second_continuation_reads_the_cached_prefix() -> None:
    page = Serving(chunks="30", cached="4")
    page.app.text_input(key="second").set_value(" lived a king")
    page.run()
    assert "reads the cached tokens (4) instead of computing their cells (10 in the first" in page.sentence()
    cells, tokens = page.cells("calls_cells"), catalog.load("story").encode([TEXT]).ids.shape[1]
    assert np.flatnonzero(~np.isnan(cells[-1])).tolist() == [0, 1, 2, 3, tokens, tokens + 1, tokens + 2]
    assert page.url.keys() & {"text", "second"} == set(), "a typed text is in no URL"
    page.type("A typed text is in no URL.")
    assert page.url.keys() & {"text", "second"} == set()
    page.set(chunks="3")
    del page.app.query_params["chunks"]  # as the browser does on Back
    page.run()
    assert (page["chunks"], page["second"]) == ("8", " lived a king")
    page.type(TEXT)
    page.app.button_group(key="align").set_value("none")
    page.run()
    assert "leave out 0 of the first layer's cells that one call computes, and compute" in page.sentence()
    page.app.number_input(key="cached").set_value(0)
    page.run()
    assert "a cached prefix of at least 1 token" in page.app.error[0].value


def test_the_ends_of_calls_are_dragged() -> None:
    page = Serving(chunks="5, 5, 5")
    for end, sizes in ((8, "8, 2, 5"), (14, "9, 1, 5"), (1, "1, 9, 5")):
        next(one for one in page.app.slider if one.label == "End of call 1").set_value(end)
        page.run()
        assert page.app.text_input(key="chunks").value == sizes
    page = Serving(chunks="8")
    page.app.slider[0].set_value(5)
    page.run()
    assert page.app.text_input(key="chunks").value == "5"
    next(one for one in page.app.button if one.label == "Set each one").click()
    page.run()
    assert page.app.text_input(key="chunks").value == "5, 5, 5"
    assert not Serving(text="x", chunks="1, 1").app.slider  # two tokens leave nothing to drag


def test_keys_of_a_short_text_are_counted_whole() -> None:
    assert Serving(text="x").figures()["calls_kernel"]["layout"]["xaxis"]["dtick"] == 1
    assert "dtick" not in Serving().figures()["calls_kernel"]["layout"]["xaxis"]


def test_without_a_text_the_page_begins_with_its_name() -> None:
    page = Serving(text=" ")
    shown = [one.type for one in page.app.main]
    assert shown.index("markdown") < shown.index("button_group")


def test_a_draft_tree() -> None:
    page = Serving(serving="tree", branching="3, 1")
    assert "every node of the tree (nodes: 6) has the logits of its own branch" in page.sentence()
    tokens = catalog.load("story").encode([TEXT]).ids.shape[1]
    mask = page.cells("tree_mask")
    assert mask.shape == (tokens + 6, tokens + 6)
    assert (mask[tokens:, tokens:] > 0).sum() == 9  # each of six nodes sees itself, three their parent
    page.app.button_group(key="stand").set_value("row")
    page.run()
    assert "have other logits than their own branch run alone" in page.sentence()
    rows = next(one.value for one in page.app.get("html") if "positions by row (wrong)" in one.value)
    assert "accepted by greedy verification" in rows


def test_typed_branches_and_what_a_draft_token_sees() -> None:
    page = Serving(serving="tree", node="3")
    page.app.text_area(key="drafts").set_value(" who was a boy\n who had a dog\n\n and")
    page.run()
    assert "(nodes: 8)" in page.sentence()
    tokens = catalog.load("story").encode([TEXT]).ids.shape[1]
    mask = page.cells("tree_mask")
    assert np.argwhere(mask == 2).tolist() == [[tokens + 3, tokens + node] for node in range(4)]
    page.app.selectbox(key="node_0").set_value(7)
    page.run()
    assert np.argwhere(page.cells("tree_mask") == 2).tolist() == [[tokens + 7, tokens + 7]]
    (dots,) = [one for one in page.figures()["tree"]["data"] if "text" in one["mode"]]
    assert [node for node, ring in zip(dots["customdata"], dots["marker"]["line"]["width"], strict=True) if ring] == [
        [7]
    ]


def test_a_tree_after_a_text_that_fills_the_context() -> None:
    page = Serving(serving="tree", text="word " * 300)
    assert "every node of the tree (nodes: 10) has the logits of its own branch" in page.sentence()
    assert any("the first 246 tokens" in one.value for one in page.app.caption)


def test_a_stream_goes_on_from_run_to_run() -> None:
    page = Serving(serving="streaming", stream_tokens="300", stream_window="20", stream_sinks="3", stream_step="4")
    assert page.figures().keys() == {"stream_loss", "stream_weights"}
    assert page.sentence() == '<p class="sentence"></p>'  # it is not drawn again while the stream goes on
    page.app.button(key="stream_stop").click()
    page.run()
    assert " of 300 tokens have been read" in (stopped := page.sentence())
    page.run()
    assert page.sentence() == stopped
    page.app.button(key="stream_resume").click()
    for _ in range(100):
        page.run()
        if page.sentence().startswith('<p class="sentence">300 tokens were read with a cache of 23 tokens'):
            break
    assert (
        "absolute, and part of cached keys: tokens keep their positions in the text, and after the" in page.sentence()
    )
    with_sinks, without, held, whole = page.figures()["stream_loss"]["data"]
    assert len(array(with_sinks["y"])) == len(array(without["y"])) == 300 - 32
    size = 23 * 2 * 6 * 192 * 4 / 2**20
    np.testing.assert_allclose(array(held["y"])[6:], size, rtol=0.1)
    np.testing.assert_allclose(array(whole["y"])[-1], 300 / 23 * size, rtol=1e-3)
    np.testing.assert_allclose(page.cells("stream_weights").sum(1), 1, atol=1e-5)
    heads = page.figures()["stream_weights"]["data"][0]["y"]
    assert (len(heads), heads[0], heads[7]) == (36, "L0 H0", "L1 H1")
    assert not page.app.session_state.stream_now.found.caches


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ({"chunks": "3", "cached": "4"}, lambda found: found.calls == [(4, 4), (3, 7), (3, 10), (3, 13), (2, 15)]),
        ({"serving": "tree", "branching": "2, 1"}, lambda found: len(found.tokens) == 4),
        ({"serving": "packing", "documents_by": "lengths", "lengths": "6"}, lambda found: found.sizes == [6, 9]),
        (
            {"serving": "streaming", "stream_text": "text", "stream_tokens": "40", "stream_window": "9"},
            lambda found: len(found.kept) == 13,
        ),
        ({"serving": "cost", "tokens": "900", "block": "64"}, lambda found: found.empty == 105),
    ],
)
def test_figures_and_code_to_take_away(query: dict[str, str], value: Callable[[Any], bool]) -> None:
    page = Serving(**query)
    page.app.session_state["serving_files"] = True
    page.run()
    kinds = {one.proto.label for one in page.app.get("download_button")}
    assert {"SVG", "PDF", "PNG 1×", "CSV"} <= kinds
    *lines, call = page.app.code[0].value.splitlines()
    names: dict[str, Any] = {}
    exec("\n".join([*lines, f"found = {call}"]), names)
    assert value(names["found"])


def test_what_is_taken_away_says_what_the_figure_shows() -> None:
    run = unmask.load("story").run(TEXT)
    calls, tree, stream = run.served(chunks=6), run.tree([-1, -1, 0]), run.streamed(60, window=9, sinks=2)
    labels = [f"={label}" for label in run.labels]
    drawn = {
        "calls": inference.calls_figure(calls, labels),
        "tree": inference.tree_figure(tree, "ran", 2),
        "packing": inference.packing_figure(run.packed(".")),
        "stream": inference.stream_figure(stream),
        "weights": inference.sinks_figure(
            stream, [str(token) for token in stream.kept], [f"L{n // 6} H{n % 6}" for n in range(36)]
        ),
        "cost": inference.blocks_figure(cost({"causal": True}, 100, 32)),
    }
    for name, figure in drawn.items():
        svg = chart_picture(Paper(name, "a caption & more"), lambda figure=figure: figure).file().decode()
        assert "<image" in svg if name in ("calls", "weights", "cost") else "<path" in svg
        assert len(list(csv.reader(io.StringIO(as_csv(figure))))) > 3
    assert "L5 H5" in texts(chart_picture(Paper("", ""), lambda: drawn["weights"]).file())
    lines = list(csv.reader(io.StringIO(as_csv(drawn["weights"]))))
    assert lines[-1][3:5] == ["35", "L5 H5"]
    lines = list(csv.reader(io.StringIO(as_csv(drawn["calls"])[1:])))
    assert lines[0] == ["series", "x", "x name", "y", "y name", "value"]
    assert len(lines) == 1 + calls.computed
    assert lines[2][1:5] == ["0", f"'={run.labels[0]}", "1", f"'={run.labels[1]}"]
    assert {line[5] for line in lines[1:]} == {"call 1", "call 2", "call 3"}


def test_what_a_node_sees_in_a_window_is_counted() -> None:
    tree = unmask.load("story").run(TEXT).tree([-1, 0, 1])
    *_, dots = inference.tree_figure(tree, "ran", 2).data
    assert all("sees the text and" in words for words in dots.hovertext[1:])
    allowed = tree.allowed.copy()
    allowed[-1, : tree.start - 2] = False  # a window of 4: itself, the node before, two text tokens
    allowed[-1, tree.start] = False
    *_, dots = inference.tree_figure(replace(tree, allowed=allowed), "ran", 2).data
    end = f"sees 2 of the {tree.start} tokens of the text and {tree.labels[1]} {tree.labels[2]} (first layer)"
    assert dots.hovertext[-1].endswith(end)
    assert dots.marker.line.width == (0, 0, 3, 3)


@pytest.mark.usefixtures("in_chinese")
def test_a_server_without_the_reader_s_fonts_prints_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fonts, printed):
        monkeypatch.setattr(module, "writes", lambda language: language == "en")
    taken: dict[str, Callable[[], bytes]] = {}
    monkeypatch.setattr("streamlit.download_button", lambda label, data, *_, **__: taken.update({label: data}))
    page = Serving(lang="zh")
    page.app.session_state["serving_files"] = True
    page.run()
    (sheet,) = PdfReader(io.BytesIO(taken["PDF"]())).pages
    for words in ("Which call computes which cell", "call 1", "query: the token that attends"):
        assert words in sheet.extract_text()
    assert "哪次调用" in taken["SVG"]().decode()


def test_a_printed_legend_names_all_calls_of_a_colour_inside_the_sheet() -> None:
    found = unmask.load("story").run(f"{TEXT} {TEXT} {TEXT}").served(chunks=2)
    for make in (
        partial(inference.calls_figure, found, ["a"] * len(found.cells)),
        partial(inference.kernel_figure, found),
    ):
        sheet = chart_picture(Paper("A title", "", "png"), make)
        legend = sheet.figure.axes[0].get_legend()
        assert "call 1, call 7, …" in [text.get_text() for text in legend.get_texts()]
        box, title = legend.get_window_extent(), sheet.figure.texts[0].get_window_extent()
        assert box.x1 <= sheet.figure.bbox.x1
        assert box.y1 <= title.y0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"chunks": "8,,3"}, "expected whole numbers separated by commas"),
        ({"chunks": "3, 3"}, "together, after a cached prefix of 0, or one size for all, got 3 + 3 = 6"),
        ({"serving": "packing", "documents_by": "lengths", "lengths": "5, 0"}, "expected documents of 1 to 15 tokens"),
        ({"serving": "cost", "cost_documents": "0"}, "expected documents of 1 to 4,096 tokens, got 0"),
        ({"serving": "packing", "documents_by": "lengths", "lengths": "9, 9"}, "at most 15 tokens together, got 18"),
        (
            {"serving": "packing", "separator": "zzz"},
            "“zzz” does not split it. Choose another separator, or give the number of tokens",
        ),
        (
            {"serving": "tree", "branching": "9, 9, 9"},
            "expected at most 64 nodes in the tree, got 819: give fewer branches",
        ),
        ({"serving": "tree", "branching": "2, 0"}, "expected at least 1 branch at each depth, got 0"),
        (
            {"serving": "packing", "documents_by": "lengths", "lengths": "15"},
            "got one of all 15: give a smaller number",
        ),
        ({"serving": "packing", "separator": ""}, "expected a separator of documents, got none: type one"),
        ({"serving": "cost", "cost_masks": "no"}, "expected a mask as JSON"),
    ],
)
def test_what_makes_no_sense_is_said(query: dict[str, str], message: str) -> None:
    page = Serving(**query)
    assert message in page.app.error[0].value
    if "cost_masks" in query:
        assert page.app.expander[0].proto.expanded  # it holds the masks to correct


def test_masks_too_long_for_a_link_are_said_to_be_left_out() -> None:
    page = Serving(serving="cost")
    assert not page.app.expander[0].proto.expanded
    page.set(cost_masks='{"causal": true}' + " " * 4_000)
    assert "cost_masks" not in page.url
    assert any("too long for a link" in one.value for one in page.app.caption)


@pytest.mark.parametrize("text", [TEXT, "Once upon a time there was a", "Once upon a", "Once"])
def test_two_documents_by_length_are_halves_of_the_text_until_lengths_are_typed(text: str) -> None:
    page = Serving(serving="packing", documents_by="lengths", text=text)
    assert not page.boxes("error")
    page.app.session_state["serving_files"] = True
    page.run()
    count = catalog.load("story").encode([text]).ids.shape[1]
    assert page.app.text_input(key="lengths").placeholder == str(count // 2)
    assert page.app.code[0].value.endswith(f"run.packed(({count // 2},))")
    assert "lengths" not in page.url


def test_a_document_of_one_token_has_no_loss() -> None:
    packing = {"serving": "packing", "documents_by": "lengths"}
    assert "Document 2 has one token, and so no loss." in Serving(**packing, lengths="3, 1, 5").sentence()
    assert "Documents 1 and 3 have one token each" in Serving(**packing, lengths="1, 3, 1").sentence()
    assert "no loss" not in Serving(**packing, lengths="3").sentence()


def test_scores_are_counted_in_whole_blocks() -> None:
    page = Serving(serving="cost", tokens="17", block="16")
    assert "computes 75.0% of the 32 × 32 scores; 80.1% of these" in page.sentence()
    assert "The number of tokens, 17, is rounded up to 32, in whole blocks." in page.sentence()
    assert "counted as" not in Serving(serving="cost", tokens="64", block="16").sentence()
    assert "0.0156 MiB" in Serving(serving="cost", tokens="1", block="64").words()


def test_many_blocks_are_drawn_as_fewer() -> None:
    found = cost({"causal": True}, 32_768, 16)
    shown = array(inference.blocks_figure(found).to_dict()["data"][0]["z"])
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


def test_a_size_beyond_the_longest_text_is_shown_as_on() -> None:
    page = Serving(serving="cost", tokens="1000", cost_masks='{"causal":true,"sinks":99999}')
    sinks = next(one for one in page.app.number_input if one.label == "Sinks")
    assert sinks.value == 32_768
    assert "computes 100%" in page.sentence()


def test_documents_split_by_a_separator_are_said_to_be_left_out() -> None:
    words = "The mask's documents depend on a text."
    shown = Serving(serving="cost", tokens="1000", cost_masks='{"documents":"."}').app
    assert any(words in one.value for one in shown.caption)
    counted = Serving(serving="cost", tokens="1000", cost_masks='{"documents":"."}', cost_documents="300, 700").app
    assert not any(words in one.value for one in counted.caption)
