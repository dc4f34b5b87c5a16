"""Tests of the digits model: images as tokens, the causal law on them, generated digits and their recognition.

All tests use the model that ships. scikit-learn's digits come with scikit-learn: nothing is downloaded.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model.errors import CheckpointError
from model.gpt2 import save_transformer
from model.masks import MaskSpec
from model.pixels import digits
from model.pixels.digits import (
    CLASSES,
    PIXELS,
    POSITIONS,
    SAMPLING,
    TITLES,
    DigitsModel,
    class_probabilities,
    real_digits,
    recogniser,
    run_with_cache,
    write,
)
from model.sampling import Sampling
from model.training import digits as measure_digits
from model.training import digits as training
from model.transformer import Transformer, TransformerConfig
from tests.tensors import assert_near

NO_CAUSAL = MaskSpec(causal=False)
ENOUGH = 0.8  # the least share of generated digits that must be recognized


@pytest.fixture(scope="module")
def model() -> DigitsModel:
    return digits.load()


@pytest.fixture(scope="module")
def hundred(model: DigitsModel) -> measure_digits.Digits:
    """Return the 100 digits of the model card: ten per class, seed 0, at the page's default temperature."""
    return measure_digits.sample(model, 100, SAMPLING)


def some_digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    test = real_digits().test
    return test.levels[:count], test.classes[:count]


def card() -> dict[str, str]:
    """Return the numbers on the model card by name."""
    text = (digits.FOLDER / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^    (\w\S*): (\d+\.\d+)$", text, re.MULTILINE))


def test_the_digits_are_those_that_scikit_learn_loads_each_once() -> None:
    from sklearn.datasets import load_digits  # only this test needs it; every pytest worker loads this file

    theirs, ours = load_digits(), real_digits()
    parts = (ours.train, ours.validation, ours.test)
    found = sorted(
        (number, *levels) for part in parts for number, levels in zip(part.classes, part.levels.tolist(), strict=True)
    )
    expected = zip(theirs.target, digits.to_levels(theirs.data).tolist(), strict=True)
    assert found == sorted((number, *levels) for number, levels in expected)


def test_values_from_0_to_16_become_the_nearest_of_eight_levels() -> None:
    assert digits.to_levels(np.array([0, 1, 2, 3, 8, 14, 15, 16])).tolist() == [0, 0, 1, 1, 4, 6, 7, 7]
    levels = np.arange(8)
    np.testing.assert_array_equal(digits.to_levels(digits.to_values(levels).round().astype(int)), levels)
    assert digits.to_values(np.array([0, 7])).tolist() == [0, 16]


def test_a_picture_is_its_class_and_then_its_pixels_row_by_row() -> None:
    picture = np.zeros((1, PIXELS), np.uint8)
    picture[0, 13] = 5  # row 1, column 5
    batch = digits.encode(picture, [3])
    assert batch.ids.shape == (1, 65)
    assert batch.ids[0, :2].tolist() == [3, 10]
    assert batch.ids[0, 14] == 15
    assert batch.pieces[0][0] == "class 3"
    assert batch.pieces[0][14] == "r1 c5: 5"
    assert batch.keep.all()


@pytest.mark.parametrize(
    ("levels", "classes", "problem"),
    [
        (np.full((1, 64), 8), [0], "levels from 0 to 7, got 8 to 8"),
        (np.zeros((1, 64)), [10], "classes from 0 to 9, got 10 to 10"),
        (np.zeros((1, 65)), [1], "up to 64"),
        (np.zeros((2, 64)), [1], "B classes"),
    ],
)
def test_what_is_no_picture_is_refused(levels: np.ndarray, classes: list[int], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        digits.encode(levels, classes)


def test_another_models_files_are_refused(tmp_path: Path) -> None:
    save_transformer(Transformer(TransformerConfig(vocabulary=19, context=65, layers=1, heads=1, width=4)), tmp_path)
    with pytest.raises(CheckpointError, match="expected a vocabulary of 18 and a context of 65, found 19 and 65"):
        digits.load(tmp_path)


def test_the_attention_of_a_query_is_that_row_of_every_head(model: DigitsModel) -> None:
    trace = model.run(digits.encode(*some_digits(2)))
    for query in (0, 29, 64):
        found = digits.attention(trace, query, row=1)
        assert found.shape == (model.num_layers, model.num_heads, POSITIONS)
        for layer in range(model.num_layers):
            for head in range(model.num_heads):
                assert_near(found[layer, head], trace.weights(layer, head, 1)[query], 1e-6, f"L{layer} H{head}")
        assert (found[..., query + 1 :] == 0).all()
        assert_near(found.sum(-1), torch.ones(model.num_layers, model.num_heads), 1e-5, "sums")


def test_the_chance_of_the_true_level_is_e_to_the_minus_its_loss(model: DigitsModel) -> None:
    levels, classes = some_digits(1)
    trace = model.run(digits.encode(levels, classes))
    true = digits.level_probabilities(trace).gather(-1, torch.tensor(levels[0].tolist())[:, None])[:, 0]
    assert_near(true, (-trace.losses()[1:]).exp(), 1e-5, "chances")


def test_no_pixel_is_predicted_from_itself_or_later_ones_unless_the_mask_is_lifted(model: DigitsModel) -> None:
    levels, classes = some_digits(1)
    other = levels.copy()
    pixel = 27
    other[0, pixel] = (other[0, pixel] + 4) % 8
    before, after = (
        [digits.level_probabilities(model.run(digits.encode(picture, classes), spec)) for picture in (levels, other)]
        for spec in (MaskSpec(), NO_CAUSAL)
    )
    assert_near(before[0][: pixel + 1], before[1][: pixel + 1], 1e-6, "with the causal mask")
    assert float((before[0][pixel + 1] - before[1][pixel + 1]).abs().max()) > 1e-3
    assert float((after[0][: pixel + 1] - after[1][: pixel + 1]).abs().max()) > 1e-3


def test_the_likeliest_digit_is_at_every_pixel_what_the_finished_picture_expects(model: DigitsModel) -> None:
    written = write(model, [4, 7], Sampling(temperature=0))
    trace = model.run(digits.encode(written, [4, 7]))
    for row in range(2):
        np.testing.assert_array_equal(digits.level_probabilities(trace, row).argmax(-1).numpy(), written[row])


def test_reading_on_with_what_was_kept_is_reading_all(model: DigitsModel) -> None:
    batch = digits.encode(*some_digits(3))
    logits = model.run(batch).logits[:, :, CLASSES:]
    first, cache = run_with_cache(model, batch.ids[:, :20])
    second, cache = run_with_cache(model, batch.ids[:, 20:21], cache)
    third, _ = run_with_cache(model, batch.ids[:, 21:50], cache)
    for found, position in ((first, 19), (second, 20), (third, 49)):
        assert_near(found, logits[:, position], 1e-4, f"logits at position {position}")


def test_what_is_given_stays_and_one_seed_writes_one_digit_whatever_stands_beside_it(model: DigitsModel) -> None:
    given = some_digits(3)[0][:, :24]
    written = write(model, [1, 5, 8], replace(SAMPLING, seed=4), given)
    np.testing.assert_array_equal(written[:, :24], given)
    assert written.shape == (3, PIXELS)
    assert written.max() < 8
    np.testing.assert_array_equal(write(model, [1], replace(SAMPLING, seed=4), given[:1])[0], written[0])
    assert (write(model, [1, 5, 8], replace(SAMPLING, seed=5), given) != written).any()
    whole = some_digits(1)[0]
    np.testing.assert_array_equal(write(model, [3], SAMPLING, whole), whole)


def test_the_chances_of_the_classes_are_those_of_their_losses(model: DigitsModel) -> None:
    levels, classes = some_digits(1)
    for given in (0, 24, 64):
        total = [
            -model.run(digits.encode(levels[:, :given], [one])).losses()[1:].double().sum() for one in range(CLASSES)
        ]
        expected = torch.stack(total).softmax(0)
        assert_near(torch.from_numpy(class_probabilities(model, levels[0, :given])), expected, 1e-5, f"{given} pixels")
    assert class_probabilities(model, levels[0]).argmax() == classes[0]


def test_no_real_digit_is_in_two_parts_and_each_part_has_all_classes() -> None:
    data = real_digits()
    parts = (data.train, data.validation, data.test)
    assert [len(part.classes) for part in parts] == [1444, 177, 176]
    assert all((np.bincount(part.classes) >= 17).all() for part in parts)
    rows = [{row.tobytes() for row in part.levels} for part in parts]
    assert not rows[0] & rows[2]
    assert not rows[1] & rows[2]
    with pytest.raises(ValueError, match="read-only"):
        data.test.levels[0, 0] = 1


@pytest.mark.parametrize("kind", TITLES)
def test_four_of_five_written_digits_are_recognised_as_on_the_card(hundred: measure_digits.Digits, kind: str) -> None:
    reader = recogniser(kind)
    rate = reader.rate(hundred)
    assert rate >= ENOUGH, f"{rate:.0%} of 100 written digits are recognised by {TITLES[kind]}"
    # another processor may round a pixel's probability the other way, and generate a few digits differently
    assert rate == pytest.approx(float(card()[f"{kind}_recognises_100_at_{SAMPLING.temperature}"]), abs=0.03)
    assert reader.accuracy == pytest.approx(float(card()[f"{kind}_accuracy_on_real"]), abs=0.006)
    assert reader.accuracy > 0.9
    assert SAMPLING.top_p == 1


def test_the_loss_with_and_without_the_causal_mask_is_the_cards(model: DigitsModel) -> None:
    test = real_digits().test
    found = {causal: measure_digits.mean_loss(model.network, test, causal=causal) for causal in (True, False)}
    assert found[True] == pytest.approx(float(card()["test_nats_a_pixel"]), abs=2e-3)
    assert found[False] == pytest.approx(float(card()["test_nats_a_pixel_without_causal"]), abs=2e-3)
    assert found[True] < np.log(8) / 2, "half of what a model that knows nothing would lose"


def test_the_loss_of_no_test_digit_falls_when_the_mask_is_lifted(model: DigitsModel) -> None:
    test = real_digits().test
    batch = digits.encode(test.levels, test.classes)
    with_mask, without = (
        torch.stack([trace.losses(row)[1:].mean() for row in range(len(test.classes))])
        for trace in (model.run(batch), model.run(batch, NO_CAUSAL))
    )
    rises = without - with_mask
    assert float(rises.min()) > 0, f"the loss of test digit {int(rises.argmin())} changes by {float(rises.min()):.3f}"


def test_training_rows_read_a_picture_and_write_its_next_pixel() -> None:
    recipe = training.DigitsRecipe(rows=7, shifted=0, misread=0)
    ids, targets = next(training.batches(real_digits().train, recipe))
    assert ids.shape == targets.shape == (7, PIXELS)
    assert (ids[:, 0] < CLASSES).all()
    torch.testing.assert_close(ids[:, 1:], targets[:, :-1])


def test_a_moved_digit_keeps_its_ink() -> None:
    recipe, generator = replace(training.DigitsRecipe(), shifted=1.0), np.random.default_rng(0)
    moved = 0
    for levels in some_digits(100)[0]:
        found = training._moved(levels, recipe, generator)
        moved += int((found != levels).any())
        assert 0 <= int(levels.sum()) - int(found.sum()) <= digits.SIDE, "at most a column of the palest grey is lost"
    assert moved > 20


def test_training_writes_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(measure_digits, "SIZES", (10,))
    monkeypatch.setattr(training, "EVALUATE_EVERY", 2)
    training.train(tmp_path, training.DigitsRecipe(minutes=1, steps=5, rows=3, layers=1, heads=2, width=8))
    assert digits.load(tmp_path).num_heads == 2
    steps = [line.partition(",")[0] for line in (tmp_path / "loss.csv").read_text().splitlines()]
    assert steps == ["step", "2", "4", "5"], "and after the last, whatever its number"
    assert "svc_recognises_10_at_0.8: " in capsys.readouterr().out


def test_more_rows_than_digits_to_train_on_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected at most 1,444 rows, all digits to train on, got 1445"):
        training.train(tmp_path, training.DigitsRecipe(rows=1445))
