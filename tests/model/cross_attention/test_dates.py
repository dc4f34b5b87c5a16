"""Tests of the dates model that ships: its accuracy on unseen days, its runs, its files, its training."""

import math
import random
import shutil
from pathlib import Path

import pytest
import torch

from model.cross_attention import dates
from model.cross_attention.dates import (
    FOLDER,
    START,
    DatesModel,
    answer_chances,
    exact_match,
    held_out_sample,
    measure,
    teacher_forced_accuracy,
)
from model.cross_attention.reading import read
from model.cross_attention.written_dates import NO_DATE, SURE, examples, held_out_days
from model.errors import CheckpointError
from model.masks import MaskSpec
from model.training.dates import DatesRecipe, answered, listed_texts, none_examples, rows_of, train, training_rows
from tests.tensors import assert_near

LIFTED = MaskSpec(padding=False)
UNCAUSAL = MaskSpec(causal=False)
LINES = ["the 3rd of March 2021", "Wednesday, the twenty-third of September, 1998"]


@pytest.fixture(scope="module")
def model() -> DatesModel:
    return dates.load()


class TestExactMatch:
    @pytest.mark.slow
    def test_at_least_98_percent_of_a_fresh_sample_of_held_out_dates(self, model: DatesModel) -> None:
        some = examples(held_out_days(), 600, random.Random("a fresh sample"))
        found = exact_match(model, some)
        assert found >= 0.98, f"{found:.2%} of {len(some)} exact"

    def test_lifting_the_padding_mask_breaks_the_writing(self, model: DatesModel) -> None:
        some = list(held_out_sample(150))
        standard, lifted = exact_match(model, some), exact_match(model, some, LIFTED)
        assert lifted <= standard - 0.2, f"{standard:.1%} with the mask, {lifted:.1%} without"

    def test_lifting_the_causal_mask_breaks_what_is_read_off_the_answer(self, model: DatesModel) -> None:
        some = list(held_out_sample(150))
        standard, lifted = teacher_forced_accuracy(model, some), teacher_forced_accuracy(model, some, UNCAUSAL)
        assert standard[0] >= 0.99
        assert lifted[0] <= standard[0] - 0.2, f"{standard[0]:.1%} with the mask, {lifted[0]:.1%} without"
        assert lifted[1] < standard[1]

    def test_a_measure_is_what_its_parts_are(self, model: DatesModel) -> None:
        some = list(held_out_sample(40))
        found = measure(model, LIFTED, 40)
        assert found.exact == exact_match(model, some, LIFTED)
        assert (found.characters, found.probability) == teacher_forced_accuracy(model, some, LIFTED)

    def test_it_is_small_enough_to_ship(self) -> None:
        assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= 0.6 * 2**20


class TestTheList:
    """A list, made before the model was trained, of ways that people write dates and of texts that are no dates."""

    def test_it_is_what_its_kinds_say_by_the_rules_and_of_held_out_days(self) -> None:
        listed, held_out = listed_texts(), {day.isoformat() for day in held_out_days()}
        assert sum(one.definite for one in listed) == 200
        for date in listed:
            readings = [day.isoformat() for day in read(date.text)] or [NO_DATE]
            assert readings == [date.answer, *([date.other] if date.other else [])], date.text
            assert {date.answer, date.other} <= held_out | {NO_DATE, ""}, date.text

    def test_at_least_95_percent_of_it_is_read(self, model: DatesModel) -> None:
        definite = [one for one in listed_texts() if one.definite]
        wrote = answered(model, [one.text for one in definite])
        wrong = [(one.text, text) for one, (text, _) in zip(definite, wrote, strict=True) if text != one.answer]
        assert len(wrong) <= 0.05 * len(definite), wrong

    def test_texts_that_are_none_are_called_so(self, model: DatesModel) -> None:
        none = [one.text for one in listed_texts() if one.answer == NO_DATE]
        wrote = [text for text, _ in answered(model, none)]
        assert wrote.count(NO_DATE) >= 0.9 * len(none), [
            pair for pair in zip(none, wrote, strict=True) if pair[1] != NO_DATE
        ]
        some = [text for text, _ in none_examples(200, random.Random("fresh"))]
        assert [text for text, _ in answered(model, some)].count(NO_DATE) >= 190

    def test_of_two_readings_the_day_comes_first_and_the_other_is_not_ruled_out(self, model: DatesModel) -> None:
        two = [one for one in listed_texts() if one.other]
        chances = [answer_chances(model, one.text, (one.answer, one.other)) for one in two]
        likelier = sum(first > second for first, second in chances)
        assert likelier >= 0.9 * len(two), chances
        assert sum(second for _, second in chances) / len(two) == pytest.approx(0.25, abs=0.12)
        assert all(sum(both) <= 1.0001 for both in chances)

    def test_answers_that_are_called_sure_are_right(self, model: DatesModel) -> None:
        some = examples(held_out_days(), 400, random.Random("sure")) + none_examples(100, random.Random("sure"))
        found = answered(model, [text for text, _ in some])
        sure = [text == wanted for (text, chance), (_, wanted) in zip(found, some, strict=True) if chance >= SURE]
        assert len(sure) > 400
        assert sum(sure) >= 0.99 * len(sure)

    def test_an_answers_chance_is_the_product_of_its_characters(self, model: DatesModel) -> None:
        written = model.write(model.encode_source(["7/5/2020"]))
        (chance,) = answer_chances(model, "7/5/2020", written.texts)
        assert chance == pytest.approx(math.prod(written.probabilities[0]), rel=1e-4)
        assert len(written.probabilities[0]) == 11
        assert answer_chances(model, "7/5/2020", ("2020", "2020-05-07"))[0] < 1e-3


class TestEncoding:
    def test_one_token_a_character_and_none_that_nobody_typed(self, model: DatesModel) -> None:
        source = model.encode(LINES).source
        assert "".join(source.pieces[0][:21]) == LINES[0].replace(" ", "·")
        assert source.pieces[0][21:] == ("<pad>",) * (len(LINES[1]) - 21)
        assert source.keep.sum(-1).tolist() == [len(line) for line in LINES]

    def test_a_target_begins_with_a_start_token_and_is_written_where_none_is_given(self, model: DatesModel) -> None:
        batch = model.encode(LINES)
        assert ["".join(pieces[1:]) for pieces in batch.pieces] == ["2021-03-03", "1998-09-23"]
        assert batch.ids[:, 0].tolist() == [START, START]
        given = model.encode(LINES, targets=["2021-03-03", "1998"])
        assert given.pieces[1][:5] == ("<start>", "1", "9", "9", "8")
        assert given.keep.sum(-1).tolist() == [11, 5]

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_what_it_wrote_is_read_as_if_it_had_been_typed(self, model: DatesModel, side: str) -> None:
        texts, targets = [*LINES, "2021"], ["2021-03-03", "1998-09-23", "none"]
        wrote, typed = model.encode(texts, side), model.encode(texts, side, targets)
        assert wrote.ids.equal(typed.ids)
        assert [wrote.read(row) for row in range(3)] == [typed.read(row) for row in range(3)] == targets
        assert wrote.ends == typed.ends

    def test_targets_must_be_one_a_text(self, model: DatesModel) -> None:
        with pytest.raises(ValueError, match="one target for each text, got 1 for 2"):
            model.encode(LINES, targets=["2021-03-03"])

    @pytest.mark.parametrize("text", ["hello world", "é", "🦊🦊", "<start><pad>", "x" * 500, " "])
    def test_any_text_gets_an_answer_of_a_few_characters(self, model: DatesModel, text: str) -> None:
        written = model.write(model.encode_source([text]))
        assert len(written.texts[0]) <= dates.MAX_WRITTEN * len("<unknown>")
        assert all(0 < chance <= 1 for chance in written.probabilities[0])
        model.run(model.encode([text]))

    def test_typed_special_tokens_are_text(self, model: DatesModel) -> None:
        assert "".join(model.encode_source(["<pad>"]).pieces[0]) == "<pad>"
        assert model.encode_source(["<pad>"]).ids.shape == (1, 5)


class TestRuns:
    def test_the_trace_has_three_attentions_of_their_own_sizes(self, model: DatesModel) -> None:
        trace = model.run(model.encode(LINES))
        assert trace.attentions == model.attentions == ("encoder", "decoder", "cross")
        length = len(LINES[1])
        shapes = {name: tuple(trace.select(name).weights(1, 2).shape) for name in trace.attentions}
        assert shapes == {"encoder": (length, length), "decoder": (11, 11), "cross": (11, length)}
        assert model.describe().layers == {name: trace.select(name).num_layers for name in trace.attentions}

    def test_its_weights_are_those_of_the_network_itself(self, model: DatesModel) -> None:
        batch = model.encode(LINES)
        trace, source = model.run(batch), batch.source
        memory, own = model.network.encoder(source.ids)
        seen = source.keep[:, None, :].expand(-1, 11, -1)
        _, self_attentions, context = model.network.decoder(batch.ids, memory, seen)
        parts = {"encoder": own, "decoder": self_attentions, "cross": context}
        for name, expected in parts.items():
            for layer, weights in enumerate(expected):
                for head in range(model.num_heads):
                    found = trace.select(name).weights(layer, head, row=0)
                    assert_near(found, weights[0, head], 1e-5, f"{name} L{layer} H{head}")

    def test_masks_block_and_are_lifted_where_they_belong(self, model: DatesModel) -> None:
        batch = model.encode(LINES)
        names = {name: set(model.run(batch).select(name).blocked_by(0)) for name in model.attentions}
        assert names == {"encoder": {"padding"}, "decoder": {"causal"}, "cross": {"padding"}}
        lifted = model.run(batch, MaskSpec(causal=False, padding=False))
        assert all(bool(lifted.select(name).allowed(0).all()) for name in model.attentions)
        assert bool((lifted.select("cross").weights(0, 0)[:, 21:] > 0).any())

    def test_writing_and_reading_what_was_written_give_the_same_probabilities(self, model: DatesModel) -> None:
        batch = model.encode(LINES)
        assert batch.source is not None
        written = model.write(batch.source)
        losses = model.run(batch).losses(0)[1:]
        assert_near((-losses).exp(), torch.tensor(written.probabilities[0][:10]), 1e-5, "probabilities")

    def test_a_batch_without_a_source_and_a_layer_that_is_not_there_are_refused(self, model: DatesModel) -> None:
        source = model.encode(LINES).source
        assert source is not None
        with pytest.raises(ValueError, match="expected a batch with a source"):
            model.run(source)
        with pytest.raises(ValueError, match="layers: expected numbers from 0 to 1"):
            model.run(model.encode(LINES), MaskSpec(layers=(7,)))


class TestFiles:
    def test_what_is_saved_is_loaded(self, model: DatesModel, tmp_path: Path) -> None:
        dates.save(model.network, tmp_path)
        again = dates.load(tmp_path)
        batch = model.encode(LINES)
        assert_near(again.run(batch).logits, model.run(batch).logits, 1e-5, "logits")

    @pytest.mark.parametrize(
        ("file", "content", "error"),
        [
            ("config.json", b"{}", "model_type"),
            ("config.json", b"[", "sizes of an encoder-decoder"),
            ("config.json", None, "no such file"),
            ("model.safetensors", b"\x00" * 40, "expected the weights"),
            ("model.safetensors", None, "expected the weights"),
            ("tokenizer.json", b"{}", "expected a tokenizer"),
        ],
    )
    def test_a_damaged_checkpoint_is_named(self, tmp_path: Path, file: str, content: bytes | None, error: str) -> None:
        for path in FOLDER.iterdir():
            shutil.copy(path, tmp_path)
        (tmp_path / file).unlink()
        if content is not None:
            (tmp_path / file).write_bytes(content)
        with pytest.raises(CheckpointError, match=error) as refused:
            dates.load(tmp_path)
        assert file in str(refused.value)


class TestTraining:
    def test_a_short_training_leaves_a_model_that_runs_and_its_loss_curve(self, tmp_path: Path) -> None:
        recipe = DatesRecipe(minutes=0.03, encoder_layers=1, decoder_layers=1, heads=2, width=16, rows=8)
        train(tmp_path, recipe)
        model = dates.load(tmp_path)
        assert model.describe().layers == {"encoder": 1, "decoder": 1, "cross": 1}
        assert len(model.write(model.encode_source(LINES)).texts) == 2
        header = (tmp_path / "loss.csv").read_text().splitlines()[0]
        assert header == "step,minutes,training_loss,held_out_exact,none_exact"

    def test_no_row_is_of_a_day_that_is_held_out(self) -> None:
        held_out = {day.isoformat() for day in held_out_days()}
        batches = training_rows(DatesRecipe(rows=64))
        rows = [row for _ in range(48) for row in next(batches)]
        assert not [iso for _, iso in rows if iso in held_out]
        assert not {text for text, iso in rows if iso != NO_DATE} & {one.text for one in listed_texts()}
        assert [iso for _, iso in rows].count(NO_DATE) == pytest.approx(0.25 * len(rows), abs=10)

    def test_a_quarter_of_the_texts_with_two_readings_is_taught_with_the_month_first(self) -> None:
        batches = training_rows(DatesRecipe(rows=64))
        pairs = [(read(text), iso) for _ in range(48) for text, iso in next(batches)]
        second = [str(readings[1]) == iso for readings, iso in pairs if len(readings) == 2]
        assert len(second) > 100
        assert sum(second) / len(second) == pytest.approx(0.25, abs=0.08)

    def test_rows_are_padded_between_their_start_and_end(self) -> None:
        source, target = rows_of([("3/4/97", "1997-04-03"), ("3 May 1997", "1997-05-03")], dates.new_tokenizer())
        assert source.shape == (2, 10)
        assert (source[0] == dates.PAD).tolist() == [False] * 6 + [True] * 4
        assert target[:, 0].tolist() == [START, START]
        assert target[:, -1].tolist() == [dates.END, dates.END]
