"""The Generation page without a browser: stepping, other paths, the cache on and off, any text, any kind of model."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from i18n import large
from model import catalog, kv_cache
from model.base import Model
from model.kv_cache import batch_of, network_of
from model.sampling import Continuation, Sampling, draw
from tests.pages.generation import PROMPT, SAMPLING, Generation, written_by
from tests.pages.page import array
from tests.tiny import put_marks_around_texts
from tests.viz.spelled import number
from ui.generation import cache_sections
from ui.generation.writing import NEXT
from ui.sidebar.models import EXAMPLES, FIRST
from viz.numbers import percent


class TestTheFirstView:
    def test_has_a_text_a_head_and_the_candidates(self, story: Model) -> None:
        page = Generation(text=None)
        assert page.text() == "<start>" + FIRST
        trace = story.run(story.encode([FIRST]))
        np.testing.assert_allclose(page.weights(), trace.weights(4, 0).numpy(), atol=1e-6)
        choice = draw(trace.logits[0, -1], SAMPLING, trace.logits.shape[1])
        top = choice.before.topk(10).indices.tolist()
        after = [percent(float(choice.after[token])) if choice.after[token] > 0 else "excluded" for token in top]
        expected = [(story.label(t), percent(float(choice.before[t])), a) for t, a in zip(top, after, strict=True)]
        assert page.candidates() == expected
        assert f"seed 1 give “{story.label(choice.token)}”" in page.sentences()[0]
        assert not page.boxes("error") + page.boxes("warning")
        buttons = page.buttons()
        assert (buttons["step"], buttons["play"], buttons["back"], buttons["start_over"]) == (True, True, False, False)

    def test_says_where_the_newest_row_looks(self, story: Model) -> None:
        page = Generation(layer="2", head="3")
        row = story.run(story.encode([PROMPT])).weights(2, 3)[-1]
        assert "of L2 H3" in page.sentences()[0]
        assert f"puts {percent(float(row.max()))} of its attention" in page.sentences()[0]
        assert f"(position {int(row.argmax())})" in page.sentences()[0]

    def test_of_several_lines_the_first_is_the_prompt(self) -> None:
        page = Generation(EXAMPLES["Two lines of very different length"])
        assert page.text() == "<start>" + PROMPT
        assert "continues the first line; 1 more line is left out" in page.words()


class TestWriting:
    def test_each_step_adds_the_token_that_is_drawn_and_a_row(self, story: Model) -> None:
        page = Generation()
        rows = len(page.weights())
        for steps in (1, 2, 3):
            page.press("step")
            assert page.path == written_by(story, steps)
            assert len(page.weights()) == rows + steps
        trace = story.run(batch_of(story, page.path.ids))
        np.testing.assert_allclose(page.weights(), trace.weights(4, 0).numpy(), atol=1e-5)

    @pytest.mark.parametrize("cache", ["true", "false"])
    def test_the_text_is_the_same_with_the_cache_and_without(self, story: Model, cache: str) -> None:
        page = Generation(cache=cache).press("step", 6)
        assert page.app.toggle(key="cache").value is (cache == "true")
        assert page.path == written_by(story, 6)

    def test_back_and_forward_is_the_same_text(self) -> None:
        page = Generation().press("step", 4)
        before = page.path, page.text()
        page.press("back", 3)
        assert len(page.path.written) == 1
        assert (page.press("step", 3).path, page.text()) == before
        page.press("start_over")
        assert not page.path.written
        assert (page.press("step", 4).path, page.text()) == before

    def test_steps_that_are_not_written_yet_all_count_until_another_text_is_chosen(self) -> None:
        def pending() -> Generation:
            page = Generation().press("step")
            page.app.session_state.writing = replace(page.app.session_state.writing, due=2)  # as two presses leave it
            return page

        page = pending().press("step")
        assert page.path == Generation().press("step", 4).path
        assert page.press("step").path == Generation().press("step", 5).path
        assert not pending().press("start_over").path.written
        assert len(pending().choose(3).path.written) == 2

    def test_another_candidate_goes_on_from_there(self, story: Model) -> None:
        page = Generation().press("step", 2)
        before = page.path
        label = page.candidates()[3][0]
        page.choose(3)
        assert page.path.ids[:-1] == before.ids
        assert (story.label(page.path.ids[-1]), page.path.by_hand) == (label, (False, False, True))

    def test_another_candidate_for_a_written_token_cuts_the_text_there(self, story: Model) -> None:
        page = Generation().press("step", 4).set(choice_at=1)
        before = page.path
        logits = story.run(batch_of(story, before.ids[:-3])).logits[0, -1]
        wanted = logits.topk(10).indices.tolist()
        assert [label for label, _, _ in page.candidates()] == [story.label(token) for token in wanted]
        assert "There the next token was" in page.sentences()[0]
        rank = next(n for n, token in enumerate(wanted) if token != before.written[1])
        page.choose(rank)
        assert page.path == before.instead(1, wanted[rank])
        assert len(page.path.written) == 2
        assert page.app.session_state.choice_at == NEXT
        assert len(page.weights()) == len(page.path.ids)

    @pytest.mark.parametrize(
        ("query", "sampling"),
        [
            ({"temperature": "0"}, Sampling(0.0, 40, 0.95, 1)),
            ({"top_k": "1"}, Sampling(0.8, 1, 0.95, 1)),
            ({"temperature": "1.5", "top_k": "0", "top_p": "1", "seed": "7"}, Sampling(1.5, 0, 1.0, 7)),
        ],
    )
    def test_is_drawn_as_the_link_says(self, story: Model, query: dict, sampling: Sampling) -> None:
        page = Generation(**query).press("step", 4)
        assert page.path == written_by(story, 4, sampling)
        shared = {name: page.app.query_params[name] for name in query}
        assert {name: float(one if isinstance(one, str) else one[0]) for name, one in shared.items()} == {
            name: float(one) for name, one in query.items()
        }

    def test_settings_change_what_is_drawn_at_once(self, story: Model) -> None:
        page = Generation()
        page.set(seed=3)
        assert "seed 3 give" in page.sentences()[0]
        page.set(temperature=0.0)
        assert "this row alone: temperature 0 gives “" in page.sentences()[0]
        assert page.candidates()[0][2] == "100%"
        assert {row[2] for row in page.candidates()[1:]} == {"excluded"}

    def test_another_prompt_begins_anew_and_another_page_does_not(self) -> None:
        page = Generation().press("step", 2)
        page.set(seed=9)
        path = page.path
        page.app.switch_page("app.py").run()
        page.app.switch_page("pages/generation.py")
        assert page.run().path == path
        assert page.app.number_input(key="seed").value == 9
        page.set(text="The king said")
        assert page.path.written == ()
        assert page.text() == "<start>The king said"

    def test_long_texts_show_the_last_64_positions(self) -> None:
        page = Generation("the cat and the dog " * 20)
        page.press("step")
        assert page.weights().shape == (64, 64)
        assert f"of {len(page.path.ids)}" in page.words()


class TestTheContext:
    def test_full_of_a_long_prompt_is_said(self, tiny_folder: Path) -> None:
        page = Generation("the cat sat on the mat " * 60, model=str(tiny_folder))
        assert "there is no room to generate" in page.words().replace("There", "there")
        assert "The context is full" in page.words()
        assert "Shorten the text" in page.words()
        assert "Go back" not in page.words()  # nothing has been generated
        buttons = page.buttons()
        assert not buttons["step"]
        assert not buttons["play"]
        assert not any(on for key, on in buttons.items() if key.startswith("candidate_"))

    def test_full_is_all_that_is_said_where_positions_may_be_distances(
        self, tiny_folder: Path, folders: dict[str, str]
    ) -> None:
        for folder, learned in ((str(tiny_folder), True), (folders["llama"], False)):
            page = Generation("the cat sat on the mat " * 60, model=folder)
            assert "The context is full" in page.words()
            assert ("all others would change position" in page.words()) == learned

    def test_fills_up_and_has_its_last_token_changed(self, tiny: Model, tiny_folder: Path) -> None:
        prompt = "a" * (tiny.context - 4)
        page = Generation(prompt, model=str(tiny_folder))
        left = tiny.context - len(page.path.ids)
        assert 1 <= left <= 4
        page.press("step", left)
        assert len(page.path.ids) == tiny.context
        assert "The context is full" in page.words()
        assert "Go back, or start over." in page.words()
        assert not page.buttons()["step"]
        last = len(page.path.written) - 1
        page.set(choice_at=last)
        rank = [on for key, on in page.buttons().items() if key.startswith("candidate_")].index(True)
        page.choose(rank)
        assert len(page.path.ids) == tiny.context
        page.press("back")
        assert page.buttons()["step"]


class TestTheCache:
    @pytest.mark.parametrize("text", [PROMPT, "Zxqv 123 !!! ünïcode 漢字"])
    def test_on_and_off_are_the_same_numbers(self, story: Model, text: str) -> None:
        page = Generation(text).press("step", 5)
        count = len(page.path.ids)
        rows, probabilities, logits, exact = (number(cells[1]) for cells in page.table())
        assert rows <= 1e-5
        assert probabilities <= 1e-5
        assert logits <= 1e-3
        assert exact <= 1e-9
        words = page.sentences()[1]
        assert f"a mask [1, {count}] with {count} of {count} cells open" in words
        assert f"{count * (count - 1) // 2:,} of its {count**2:,} cells blocked" in words
        figure = page.figures()["cached_row"]["data"]
        mask, weights = array(figure[0]["z"]), array(figure[1]["z"])
        assert (mask[0] == 1).all()
        expected = story.run(batch_of(story, page.path.ids)).weights(4, 0)[-1].numpy()[-64:]
        for row in weights[1:]:
            np.testing.assert_allclose(row, expected, atol=1e-5)

    def test_names_the_precision_that_the_model_computes_in(
        self, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("UNMASK_PRECISION", "bfloat16")
        folder = shutil.copytree(tiny_folder, tmp_path / "sixteen")
        page = Generation(model=str(folder), text="the cat sat").press("step")
        assert "logits, in bfloat16" in page.words()
        sentence = page.words()
        assert "rounding error" not in sentence, "nothing differs"
        compared = cache_sections.compared
        less = lambda *of: replace(compared(*of), logits=compared(*of).logits + 0.1)  # noqa: E731
        monkeypatch.setattr(cache_sections, "compared", less)
        monkeypatch.setattr(kv_cache, "fits_float64", lambda model: False)
        assert "bfloat16 has about 2 significant digits" in page.run().words()

    def test_says_what_this_step_cost_either_way(self, story: Model) -> None:
        network = network_of(story)
        page = Generation().press("step")
        count = len(page.path.ids)
        full, one = (large(kv_cache.multiply_adds(network.config, queries, count)) for queries in (count, 1))
        words = f"A step to token {count} takes {one} multiply-adds with the cache"
        assert words in page.words()
        assert f"{full} without." in page.words()
        assert f"keys and values of {count - 1} of {count} positions" in page.words(), "1, too"
        assert "The key-value cache is on." in page.words()
        page.set(cache=False)
        assert words in page.words()
        assert "The key-value cache is off." in page.words()

    def test_cost_of_every_step_is_counted_and_measured(self, story: Model) -> None:
        network = network_of(story)
        assert network is not None
        page = Generation().press("step", 2).set(generation_section="cost")
        count = len(page.path.ids)
        full, full_measured, one, one_measured = page.figures()["cost_figure"]["data"]
        lengths = range(1, count + 1)
        np.testing.assert_allclose(
            array(full["y"]), [kv_cache.multiply_adds(network.config, n, n) / 1e6 for n in lengths]
        )
        np.testing.assert_allclose(
            array(one["y"]), [kv_cache.multiply_adds(network.config, 1, n) / 1e6 for n in lengths]
        )
        for measured in (full_measured, one_measured):
            assert list(array(measured["x"])) == list(range(2, count + 1))
            assert (array(measured["y"]) > 0).all()
        grown = full["y"][-1] / full["y"][0]
        assert f"grew {grown:,.1f}-fold, the cached one {one['y'][-1] / one['y'][0]:,.2f}-fold" in page.sentences()[1]
        before = page.app.session_state.measured
        page.press("step")
        assert page.app.session_state.measured == before, "not measured again for one token more"
        page.press("measure")
        assert page.app.session_state.measured.ids == page.path.ids

    def test_measuring_can_be_stopped(self) -> None:
        page = Generation().press("step", 2).set(generation_section="cost")
        page.app.session_state.measured = replace(
            page.app.session_state.measured, tries=page.app.session_state.measured.tries[:2], stopped=True
        )
        page.run()
        assert "The measurement was stopped early." in page.words()
        assert len(array(page.figures()["cost_figure"]["data"][1]["x"])) == 2

    def test_without_the_causal_mask_old_rows_change(self) -> None:
        page = Generation().press("step", 5).set(generation_section="lift")
        rows = page.table()
        on, lifted = ([number(row[side]) for row in rows] for side in (1, 2))
        assert max(on) <= 2e-5
        weight, first_layer, kept, logit, error = lifted
        assert first_layer <= 1e-5
        assert min(weight, kept, logit, error) > 0.01
        count = len(page.path.ids) - 1
        assert f"changes {count} of the rows above it ({count})" in page.sentences()[1]
        bars = array(page.figures()["old_rows"]["data"][0]["y"])
        assert len(bars) == count
        assert bars.max() == pytest.approx(weight, rel=0.01)
        page.set(old_rows_causal=True)
        assert f"changes 0 of the rows above it ({count})" in page.sentences()[1]
        assert array(page.figures()["old_rows"]["data"][0]["y"]).max() <= 1e-5

    def test_nothing_is_computed_below_while_it_plays(self) -> None:
        page = Generation().press("play")
        assert "Pause to compute this section" in page.words()
        assert "cached_row" not in page.figures()


class TestOtherModels:
    def test_another_decoder_writes_too(self, folders: dict[str, str]) -> None:
        page = Generation("the cat sat", model=folders["llama"]).press("step", 3)
        model = catalog.load(folders["llama"])
        assert page.path == written_by(model, 3, text="the cat sat")
        assert len(page.candidates()) == 10
        assert "runs on its own code here" in page.words()
        assert not [toggle for toggle in page.app.toggle if toggle.key == "cache"]

    @pytest.mark.parametrize("name", ["bert", "t5"])
    def test_what_is_no_decoder_is_said_to_be_none(self, folders: dict[str, str], name: str) -> None:
        page = Generation("the cat", model=folders[name])
        assert "is not a decoder" in page.words()
        assert "step" not in page.buttons()
        page.set(model="story")
        assert page.press("step").path.written

    def test_our_own_kind_of_folder_has_a_cache(self, tiny_folder: Path) -> None:
        page = Generation("the cat sat", model=str(tiny_folder)).press("step", 2)
        assert number(page.table()[0][1]) <= 1e-5

    def test_a_text_is_continued_before_what_a_tokenizer_adds(self, tiny_folder: Path, tmp_path: Path) -> None:
        folder = shutil.copytree(tiny_folder, tmp_path / "marked")
        put_marks_around_texts(folder)
        model = catalog.load(str(folder))
        begun = Continuation(tuple(model.encode(["the cat sat"]).ids[0, :-1].tolist()))
        page = Generation("the cat sat", model=str(folder)).press("step", 2)
        assert page.path == written_by(model, 2, begun=begun)
        page = Generation("a" * 500, model=str(folder))
        assert len(page.path.ids) == model.context - 1
        assert "the last 351 characters of the text are cut" in page.words()
        assert "no room" not in page.words()
        assert page.buttons()["step"]
