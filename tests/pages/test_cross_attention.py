"""The Cross-attention page without a browser: the dates model, its masks, and encoder-decoders of the Hub."""

import html
import re
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pytest

from model.base import Model
from model.cross_attention import dates
from model.cross_attention.dates import DatesModel, answer_chances, measure
from model.masks import MaskSpec
from serving.loaded_models import LoadedModels
from tests.apptest import charts
from tests.pages.page import Page, array
from ui.controls import OWN_TEXT
from ui.cross_attention import ADDED_LINES, EXAMPLES, FIRST, MASKS, SAMPLE
from viz.html import signed
from viz.numbers import chance, percent

BESIDE = ADDED_LINES[1]
LIFTED = {"cross_padding": MaskSpec(padding=False), "cross_causal": MaskSpec(causal=False)}


class CrossAttention(Page):
    """One user's page."""

    SCRIPT = "pages/cross_attention.py"

    def type(self, text: str) -> Self:
        return self.set(date_text=text)

    def strip(self) -> tuple[list[str], list[list[str]]]:
        """Return the output tokens, and the rows of probabilities below them."""
        (table,) = re.findall(r'<table class="numbers written">(.*?)</table>', "".join(self.html()))
        outputs, *rows = table.split("</tr>")[:-1]
        written = [html.unescape(one) for one in re.findall(r'class="token"[^>]*>(.*?)</td>', outputs)]
        return written, [[html.unescape(one) for one in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows]

    def breaks(self) -> dict[str, list[str]]:
        """Return the cells of the table of what breaks, by the name of the masks."""
        (table,) = re.findall(r'<table class="numbers breaks">(.*?)</table>', "".join(self.html()))
        rows = [re.findall("<td.*?>(.*?)</td>", row) for row in table.split("<tr")[3:]]
        return {row[0]: [html.unescape(cell) for cell in row[1:]] for row in rows}

    def weights(self, part: str) -> np.ndarray:
        """Return the weights of a heatmap, float [Q,K], NaN where blocked."""
        return array(self.trace(f"{part}_figure", "weights")["z"])

    def row(self) -> np.ndarray:
        """Return the weights of the chosen step over the source."""
        return array(self.trace("alignment", "source row")["y"])


@pytest.fixture(scope="module")
def model() -> DatesModel:
    return dates.load()


class TestFirstView:
    def test_writes_a_date_and_says_that_it_is_right_and_how_sure(self, model: DatesModel) -> None:
        page = CrossAttention()
        assert len(BESIDE) - len(FIRST) == 5  # padding tokens, few enough to inspect one by one
        written = model.write(model.encode_source([FIRST, BESIDE]))
        smallest = min(written.probabilities[0][:10])
        assert page.sentence().startswith(
            "Under the standard masks the model writes 2021-03-03, which is correct: the text means 3 March 2021."
        )
        assert f"with {chance(smallest)}." in page.sentence()
        outputs, (chances,) = page.strip()
        assert "".join(outputs) == "2021-03-03<end>"
        assert chances == [chance(one) for one in written.probabilities[0]]
        assert not page.boxes("error") + page.boxes("warning")

    def test_says_what_is_done_while_its_model_waits_for_another_user_s_load(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        CrossAttention()
        find, load, loaded = LoadedModels.find, LoadedModels.load, []

        def show_first(self: LoadedModels, name: str, settings: Any, show: Callable[[str], None]) -> Model:
            show("waiting for another model's load")
            loaded.append(name)
            return load(self, name, settings, show)

        monkeypatch.setattr(LoadedModels, "find", lambda self, name: None if name == "dates" else find(self, name))
        monkeypatch.setattr(LoadedModels, "load", show_first)
        assert not CrossAttention().boxes("error")
        assert loaded == ["dates"]

    def test_shows_the_three_attentions_of_the_model(self, model: DatesModel) -> None:
        page, trace = CrossAttention(), model.run(model.encode([FIRST, BESIDE]))
        for part, layer in (("cross", 0), ("encoder", 0), ("decoder", 1)):
            of_part = trace.select(part)
            expected = np.mean([of_part.weights(layer, head).numpy() for head in range(4)], axis=0)
            expected[~of_part.allowed(layer).numpy()] = np.nan
            np.testing.assert_allclose(page.weights(part), expected, atol=1e-6)

    def test_draws_the_chosen_steps_source_row(self, model: DatesModel) -> None:
        cross = model.run(model.encode([FIRST, BESIDE])).select("cross")
        page = CrossAttention(step="2").set(cross_layer=1, cross_head=3)
        np.testing.assert_allclose(page.row(), cross.weights(1, 3)[2].numpy(), atol=1e-6)
        text = page.words()
        weight = cross.weights(1, 3)[2].max()
        assert f"Step 3 writes 2 with >99.9% and attends most to 2 (position 8), with a weight of {weight:.2f}" in text
        page.set(cross_step=8)
        np.testing.assert_allclose(page.row(), cross.weights(1, 3)[8].numpy(), atol=1e-6)

    def test_an_alignments_lines_are_the_weights(self, model: DatesModel) -> None:
        cross = model.run(model.encode([FIRST, BESIDE])).select("cross")
        page = CrossAttention().set(cross_head=1)
        shapes = page.figures()["alignment"]["layout"]["shapes"]
        drawn = {
            (round(one["x1"] * 11 - 0.5), round(one["x0"] * len(BESIDE) - 0.5)): float(
                one["line"]["color"][:-1].split(",")[-1]
            )
            for one in shapes
        }
        weights = cross.weights(0, 1).numpy()
        assert {step for step, _ in drawn} == set(range(11))
        for (step, key), opacity in drawn.items():
            assert opacity == pytest.approx(float(weights[step, key]), abs=1e-4)


class TestMasks:
    def test_what_breaks_is_measured_with_the_model(self, model: DatesModel) -> None:
        table = CrossAttention().breaks()
        assert list(table) == list(MASKS)
        for name, spec in MASKS.items():
            found = measure(model, spec, SAMPLE)
            wrote = model.write(model.encode_source([FIRST, BESIDE]), spec).texts[0]
            assert table[name][:2] == [wrote, "which is correct" if wrote == "2021-03-03" else "which is wrong"]
            assert table[name][2:] == [percent(one) for one in (found.exact, found.characters, found.probability)]

    @pytest.mark.parametrize("switch", list(LIFTED))
    def test_a_lifted_mask_changes_the_heatmaps_and_the_probabilities(self, model: DatesModel, switch: str) -> None:
        page, spec = CrossAttention().set(**{switch: False}), LIFTED[switch]
        trace = model.run(model.encode([FIRST, BESIDE]), spec)
        outputs, (now, standard) = page.strip()
        expected = np.exp(-trace.losses(0).numpy()[1:])
        assert now[:10] == [chance(float(one)) for one in expected]
        assert now != standard
        assert "all of it as the decoder's input" in page.words()
        assert "".join(outputs) == "2021-03-03<end>"
        part, layer = ("cross", 0) if switch == "cross_padding" else ("decoder", 1)
        weights = np.mean([trace.select(part).weights(layer, head).numpy() for head in range(4)], axis=0)
        np.testing.assert_allclose(page.weights(part), weights, atol=1e-6)
        wrote = model.write(model.encode_source([FIRST, BESIDE]), spec).texts[0]
        assert f"when it writes on its own, it writes {wrote}," in page.sentence()

    def test_the_standard_masks_and_the_change_can_be_seen_beside(self) -> None:
        page = CrossAttention(cross_padding="false")
        lifted = page.weights("cross")
        page.set(cross_shown="standard")
        standard = page.weights("cross")
        assert not np.isnan(lifted).any()
        assert np.isnan(standard).any()
        page.set(cross_shown="change")
        change = [one for one in page.figures()["cross_figure"]["data"] if one["name"] == "difference"]
        np.testing.assert_allclose(array(change[0]["z"]), lifted - np.nan_to_num(standard), atol=1e-6)
        alt = charts(page.app)["cross_figure"]["alt"]
        largest = lifted - np.nan_to_num(standard)
        query, key = np.unravel_index(np.abs(largest).argmax(), largest.shape)
        assert alt.startswith("How the weights of cross L0 mean of heads change from the standard masks to these.")
        assert f"{signed(largest[query, key], 2)}, is that of query {query} " in alt
        assert page.words().count("Blue: the weight fell; red: it rose.") == 3
        assert "Colours run from" not in page.words()
        assert page.words().count("Hatched cells are blocked.") == 1  # the decoder's, which is still causal

    def test_a_longer_line_beside_makes_more_padding(self) -> None:
        page = CrossAttention().set(cross_beside=ADDED_LINES[-1])
        assert len(page.row()) == len(ADDED_LINES[-1])
        text = "the 3rd of March 2021"
        assert "so that there is padding" in page.words()
        assert page.type(text).set(cross_beside=ADDED_LINES[0]).words().count("it has no padding") == 1
        assert "so that there is padding" not in page.words()
        assert len(page.row()) == len(text)

    @pytest.mark.parametrize("text", ["3/3/21", "on Friday, 7 September 1984"])
    def test_the_first_line_beside_gives_any_text_a_few_cells_of_padding(self, text: str) -> None:
        assert 5 <= len(CrossAttention(date_text=text).row()) - len(text) <= 11

    def test_the_first_view_shows_that_five_cells_of_padding_can_make_a_date_wrong(self, model: DatesModel) -> None:
        wrote = model.write(model.encode_source([FIRST, BESIDE]), MaskSpec(padding=False)).texts[0]
        assert wrote not in ("2021-03-03", "none")
        text = CrossAttention().set(cross_padding=False).sentence()
        assert f"Without the padding mask, when it writes on its own, it writes {wrote}, which is wrong." in text

    def test_one_probability_has_one_spelling(self) -> None:
        """In the strip of output tokens and in the table of next tokens of the chosen step."""
        page = CrossAttention(step="3")
        outputs, (chances,) = page.strip()
        (table,) = re.findall(r'<table class="numbers next">(.*?)</table>', "".join(page.html()))
        label, probability = re.findall(r'class="token">(.*?)</td><td class="number">(.*?)</td>', table)[0]
        assert (html.unescape(label), html.unescape(probability)) == (outputs[3], chances[3])


class TestTexts:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("13/4/97", "writes 1997-04-13, which is correct: the text means 13 April 1997"),
            ("2021年3月3日", ": the text has letters that are not English (年, 月, 日)"),
            ("5 <b>juin</b> 2020 or 3 May 2021 or 4 May", "the text means 3 May 2021"),
        ],
    )
    def test_a_text_is_judged_by_the_rules(self, text: str, words: str) -> None:
        assert words in CrossAttention().type(text).sentence()

    def test_a_text_with_two_readings_has_the_models_probability_of_each(self, model: DatesModel) -> None:
        sentence = CrossAttention().type("7/5/2020").sentence()
        chances = answer_chances(model, "7/5/2020", ("2020-05-07", "2020-07-05"))
        assert "which is the reading with the day first. The text could mean 7 May 2020 or, the month first" in sentence
        assert f"gives the two a probability of {chance(chances[0])} and {chance(chances[1])}." in sentence

    def test_every_example_works(self) -> None:
        page = CrossAttention()
        for example, text in EXAMPLES.items():
            page.set(date_example=example)
            assert page.app.text_area(key="date_text").value == text
            assert "writes" in page.sentence()
            assert "it has no padding" not in page.words(), "the line beside is long enough for each text"
            assert OWN_TEXT not in page.widget("date_example").options, "nothing was typed"

    def test_several_lines_are_one_batch_without_one_of_ours(self) -> None:
        page = CrossAttention().type("3 March 2021\nWednesday, the 5th of May 1999\n\n1/2/33").set(cross_row=2)
        assert "1999-05-05" in page.sentence()
        assert "Added to the batch" not in page.words()
        assert "it has no padding" in page.words()
        assert "2033-02-01" in page.set(cross_row=3).sentence()

    def test_what_does_not_fit_is_said_to_be_cut(self) -> None:
        assert "reads at most 96 tokens" in CrossAttention().type("the third of March " * 9).words()

    def test_characters_without_a_token_are_said_to_be_unknown(self) -> None:
        assert "reads <unknown> instead" in CrossAttention().type("3 März 2021").words()


class TestOtherModels:
    def test_a_decoder_gives_way_to_the_dates_model_and_it_is_said(self, folders: dict[str, str]) -> None:
        assert "story has no source" in CrossAttention().words()
        page = CrossAttention(model=folders["bert"])
        assert "bert has no source" in page.words()
        assert "2021-03-03" in page.sentence()

    def test_a_server_without_other_models_sends_nobody_to_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "under *Another model…*" in CrossAttention().words()
        monkeypatch.setenv("UNMASK_SHARED", "true")
        words = CrossAttention().words()
        assert "story has no source" in words
        assert "Another model" not in words

    @pytest.mark.parametrize("name", ["t5", "marian", "bart"])
    def test_encoder_decoders_have_the_same_views(self, folders: dict[str, str], name: str) -> None:
        page = CrossAttention(model=folders[name], text="the cat sat on a mat", target="on a mat", step="1")
        outputs, (chances,) = page.strip()
        assert outputs[:-1] == ["on", "a", "mat"]
        assert len(chances) == len(outputs)
        cross, encoder, decoder = (page.weights(part) for part in ("cross", "encoder", "decoder"))
        assert cross.shape == (decoder.shape[0], encoder.shape[0])
        np.testing.assert_allclose(np.nansum(cross, axis=1), 1, atol=1e-5)
        given = cross.shape[0] - len(outputs)  # BART's target begins with a start token that it does not write
        assert given == (name == "bart")
        np.testing.assert_allclose(page.row(), np.nan_to_num(cross[1 + given]), atol=1e-6)
        assert "loss_figure" in page.figures()
        page.set(cross_padding=False).set(cross_causal=False)
        assert len(page.strip()[1]) == 2
        assert not np.isnan(page.weights("decoder")).any()

    def test_a_target_that_nobody_typed_is_written(self, folders: dict[str, str]) -> None:
        page = CrossAttention(model=folders["t5"], text="the cat\nthe cat sat on a mat and then")
        assert len(page.strip()[0]) >= 1
        assert "Added to the batch" not in page.words()

    def test_a_written_target_without_an_end_is_said_to_go_on(self, folders: dict[str, str]) -> None:
        page = CrossAttention(model=folders["bart"], text="the cat")  # its weights are random, so it never ends
        assert len(page.strip()[0]) == 40 + 1
        assert "Target row 1 shows the first 40 tokens that bart writes; it would go on." in page.words()
        assert "Target row 2" not in page.words()  # the row that the page added
        assert "it would go on" not in page.set(target="a mat").words()

    def test_from_the_dates_model_to_another_and_back(self, folders: dict[str, str]) -> None:
        page = CrossAttention(model=folders["t5"], text="the cat", target="a mat")
        page.set(encoder_layer=2, cross_head=3)
        page.set(model="story")
        assert "2021-03-03" in page.sentence()
