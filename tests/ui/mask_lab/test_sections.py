"""The Mask Lab's sections without a browser, on the built-in model: they show what the run computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from model import catalog
from model.heads.reach import reach_of
from model.mask_lab.fills import DTYPES, FILLS, KERNELS
from model.masks import MaskSpec, Stroke
from model.trace import Trace
from tests.apptest import charts, key_of
from tests.model.huggingface import families
from tests.pages.page import array
from tests.viz.markup import cells_of
from tests.viz.spelled import number
from ui.sidebar.models import FIRST
from viz.mask_lab.steps import MAX_KEYS
from viz.numbers import percent

LINES = ["Once upon a time", FIRST]


def page() -> None:
    import streamlit as st

    from model import catalog
    from ui import run_view
    from ui.heads import query
    from ui.mask_lab import by_hand, lab

    given = st.session_state
    model = st.cache_resource(catalog.load)(given.name)
    batch = model.encode(list(given.lines), "left", **given.targets)
    now, _ = run_view.run_pair(model, batch, given.spec, given.at, given.part, only_layer=given.only_layer)
    chosen = () if given.section == "fills" else (query.choose(now),)
    show = {"reach": lab.show_reach, "steps": lab.show_steps, "fills": by_hand.show_fills}[given.section]
    show(now, given.depth, given.head, *chosen)


class Section:
    """One section, for one head. Every run of it must end without an exception."""

    def __init__(self, section: str, spec: MaskSpec | None = None, **given: Any) -> None:
        self.app = AppTest.from_function(page, default_timeout=60)
        defaults = {"name": "story", "lines": LINES, "targets": {}, "at": 1, "only_layer": None, "part": "self",
                    "depth": 4, "head": 0}  # fmt: skip
        for name, value in (defaults | given | {"section": section, "spec": spec or MaskSpec()}).items():
            self.app.session_state[name] = value
        self.run()

    def run(self) -> "Section":
        self.app.run()
        assert not self.app.exception, self.app.exception[0].stack_trace
        return self

    def pick(self, query: int) -> "Section":
        self.app.selectbox(key=key_of(self.app, "query")).set_value(query)
        return self.run()

    @property
    def query(self) -> int:
        return self.app.session_state[key_of(self.app, "query")]

    def figure(self, key: str) -> dict[str, Any]:
        chart = charts(self.app)[key]
        assert len(chart["alt"]) > 60
        return chart["figure"]

    def z(self, key: str, name: str) -> np.ndarray:
        (found,) = [trace for trace in self.figure(key)["data"] if trace.get("name") == name]
        return array(found["z"])

    def words(self) -> str:
        return "\n".join(part.proto.body for part in self.app.get("html"))

    def rows(self) -> list[list[str]]:
        """Return the cells of all tables, without header rows."""
        return cells_of(self.words())


def story_trace(spec: MaskSpec) -> Trace:
    model = catalog.load("story")
    return model.run(model.encode(LINES, "left"), spec)


SPECS = [
    MaskSpec(),
    MaskSpec(sliding=4),
    MaskSpec(causal=False, sliding=2, layers=(4,)),
    MaskSpec(sliding=3, sinks=1, heads=(0, 2)),
    MaskSpec(causal=False, padding=False),
    MaskSpec(drawn=(Stroke("block", 0, 0, 22, 22),)),
    MaskSpec(stride=2, drawn=(Stroke("block", 3, 0, 5, 9), Stroke("open", 2, 7, 3, 9))),
]


@pytest.mark.parametrize("section", ["reach", "steps", "fills"])
@pytest.mark.parametrize(("spec", "at"), [(spec, index % 2) for index, spec in enumerate(SPECS)])
def test_each_section_shows_something_and_nothing_is_wrong(section: str, at: int, spec: MaskSpec) -> None:
    shown = Section(section, spec, at=at)
    assert not [*shown.app.error, *shown.app.warning, *shown.app.info]
    assert shown.words().count('class="sentence"') >= 1
    assert len(shown.rows()) >= 1
    assert "nan" not in shown.words()


class TestReach:
    @pytest.mark.parametrize("spec", SPECS)
    def test_it_is_that_of_the_masks_asked_for(self, spec: MaskSpec) -> None:
        shown = Section("reach", spec)
        found = reach_of(story_trace(spec), 1, spec, 0, 0)
        np.testing.assert_array_equal(np.nan_to_num(shown.z("reach_figure", "reach")), found.first)
        shown.pick(11)
        assert f"position 11) may attend to {int(found.window[4, 11])} in layer" in shown.words()
        assert int(shown.rows()[-1][2]) == found.seen[-1, 11]

    def test_a_query_that_is_no_longer_there_is_replaced(self) -> None:
        shown = Section("reach", query=900)
        assert (shown.app.session_state["query"], shown.query) == (None, 22)
        assert Section("reach", query=5).query == 5


class TestSteps:
    @pytest.mark.parametrize(
        ("spec", "scope"), [*((spec, "model") for spec in SPECS), *((spec, "layer") for spec in SPECS[2::4])]
    )
    def test_the_numbers_of_the_row_are_the_runs(self, spec: MaskSpec, scope: str) -> None:
        trace = story_trace(spec if scope == "model" else MaskSpec())
        stages = trace.stages(4, 0, 1, spec)
        shown = Section("steps", spec, only_layer=4 if scope == "layer" else None).pick(13)
        rows = shown.rows()
        assert len(rows) == 24
        for key, (name, raw, scaled, wrote, _, weight, _) in enumerate(rows[:-1]):
            assert name == f"{key}: {trace.keys.pieces[1][key]}"
            assert number(raw) == pytest.approx(float(stages.raw[13, key]), abs=6e-4)
            assert number(scaled) == pytest.approx(float(stages.scaled[13, key]), abs=6e-5)
            assert number(weight) == pytest.approx(float(stages.weights[13, key]), abs=1e-6)
            names = [name for name, mask in trace.blocked_by(4, 1, spec, head=0).items() if mask[13, key]]
            assert wrote == ("−∞ " + " ".join(names) if names else "unchanged")
        bars = [trace for trace in shown.figure("values_figure")["data"] if trace["type"] == "bar"]
        np.testing.assert_allclose(array(bars[-1]["y"]), stages.output[13], atol=1e-5)
        np.testing.assert_allclose(shown.z("steps_figure", "output"), stages.output, atol=1e-6)

    def test_long_texts_stay_small(self) -> None:
        shown = Section("steps", lines=[" ".join([FIRST] * 10)], at=0)
        assert len(shown.rows()) == MAX_KEYS + 2
        assert sum(len(json.dumps(chart)) for chart in charts(shown.app).values()) < 1_500_000
        assert "the largest of 2\u00a0×\u00a02" in shown.words()

    def test_values_are_chosen_by_weight_where_there_are_more_than_are_shown(self) -> None:
        assert ", those with the largest weights (" in Section("steps").words()
        assert "the value v of each key that is not blocked." in Section("steps", MaskSpec(sliding=1)).words()


class TestFills:
    def test_it_is_about_the_chosen_head(self) -> None:
        trace = story_trace(MaskSpec())
        shown = Section("fills", head=3)
        weights = trace.stages(4, 3, 1).scaled.masked_fill(~trace.allowed(4, 1), -10.0).softmax(-1)
        leak = float((weights * ~trace.allowed(4, 1)).max())
        (row,) = [row for row in shown.rows() if row[0] == "−10"]
        assert row[4] == percent(leak)
        assert "L4 H3" in shown.words()

    def test_it_takes_the_masks_own_empty_row_where_there_is_one(self) -> None:
        assert "a copy of the last one is" in Section("fills").words()
        assert "that of query 0" in Section("fills", at=0).words()
        everything = Section("fills", MaskSpec(drawn=(Stroke("block", 0, 0, 40, 40),))).words()
        assert "No row has an allowed key" in everything
        assert "of their" not in everything
        assert len(Section("fills").rows()) == len(FILLS) * len(DTYPES) + 1 + 9 + len(KERNELS)


class TestOtherArchitectures:
    """A logit cap, a bias and sinks; grouped keys and values; and an attention with queries and keys of two texts."""

    @pytest.mark.parametrize(
        ("name", "part"),
        [("gemma2", "self"), ("gpt_oss", "self"), ("t5", "decoder"), ("t5", "encoder"), ("t5", "cross")],
    )
    def test_the_row_adds_up_to_the_runs_weights(self, name: str, part: str, tmp_path: Path) -> None:
        folder = str(families.save(name, tmp_path))
        lines, targets = ["the cat sat on a mat", "one big red ball"], {}
        if name == "t5":
            targets = {"targets": ["a big cat and a ball", "it sat"]}
        model = catalog.load(folder)
        trace = model.run(model.encode(lines, "left", **targets)).select(part)
        given = {"name": folder, "lines": lines, "targets": targets, "at": 0, "part": part, "depth": 1, "head": 3}
        shown = Section("steps", model.standard, **given).pick(3)
        stages = trace.stages(1, 3, 0)
        for key, cells in enumerate(shown.rows()[: stages.weights.shape[1]]):
            assert number(cells[-2]) == pytest.approx(float(stages.weights[3, key]), abs=1e-6)
        np.testing.assert_allclose(shown.z("steps_figure", "output"), stages.output, atol=1e-6)
        bars = [trace for trace in shown.figure("values_figure")["data"] if trace["type"] == "bar"]
        np.testing.assert_allclose(array(bars[-1]["y"]), stages.output[3], atol=1e-5)
        assert "The largest unblocked score is subtracted" in shown.words()
        assert ("The sink's score, the largest, is subtracted" in shown.pick(1).words()) == (name == "gpt_oss")
        for section in ("fills", "reach"):
            other = Section(section, model.standard, **given)
            assert bool(other.app.info) == (section == "reach" and part == "cross")
