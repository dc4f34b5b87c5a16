"""Tests of the twins that ship and their measures: losses, accuracy, copy scores, generation, a changed token."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from model import masks
from model.masks import MaskSpec
from model.text import START_ID, TokenBatch
from model.training import twins as training
from model.training.story import read_books
from model.why_causal import twins
from model.why_causal.live_training import token_losses
from model.why_causal.twins import COMBINATIONS, Combination, TwinPair
from tests.tensors import assert_near

WITH_WITH, WITH_WITHOUT, WITHOUT_WITH, WITHOUT_WITHOUT = COMBINATIONS
TEXTS = [
    "Once upon a time there was a little girl who lived in a house by the sea.",
    'The king said to his son, "Go into the wood and bring me the golden bird." And the boy went.',
    "It was a cold day, and the old man sat by the fire and said nothing at all.",
]


@pytest.fixture(scope="module")
def pair() -> TwinPair:
    return twins.load()


def on(pair: TwinPair, text: str, one: Combination) -> twins.TwinOutcome:
    return twins.outcome(pair.run(pair.encode(text), one))


# what ships


def test_both_are_small_and_of_one_shape() -> None:
    assert sum(path.stat().st_size for path in twins.FOLDER.rglob("*") if path.is_file()) <= 4_000_000
    one, other = (load_file(twins.FOLDER / name / "model.safetensors") for name in twins.FOLDERS.values())
    assert {name: weight.shape for name, weight in one.items()} == {
        name: weight.shape for name, weight in other.items()
    }
    configs = [(twins.FOLDER / name / "config.json").read_text() for name in twins.FOLDERS.values()]
    assert configs[0] == configs[1]


def test_each_stands_for_the_mask_it_was_trained_with(pair: TwinPair) -> None:
    assert pair.models[True].standard.causal
    assert not pair.models[False].standard.causal


@pytest.mark.parametrize("text", TEXTS)
def test_the_four_losses_are_in_their_order_on_any_text(pair: TwinPair, text: str) -> None:
    losses = {one: on(pair, text, one).loss for one in COMBINATIONS}
    assert losses[WITHOUT_WITHOUT] < 0.2, losses
    assert losses[WITHOUT_WITHOUT] < losses[WITH_WITH] < losses[WITH_WITHOUT] < losses[WITHOUT_WITH], losses
    assert losses[WITHOUT_WITH] > 2 * losses[WITH_WITH], losses


def test_the_four_on_held_out_text_are_those_of_the_card(pair: TwinPair, data: Path) -> None:
    held_out = read_books(data / "text").held_out
    ids, targets = training.held_out_rows(held_out, pair.tokenizer, pair.context, 200)
    measured = {
        one: twins.loss_and_accuracy(pair.models[one.trained], ids, targets, causal=one.run) for one in COMBINATIONS
    }
    card = {
        WITH_WITH: (3.18, 0.331),
        WITH_WITHOUT: (4.68, 0.136),
        WITHOUT_WITH: (14.24, 0.016),
        WITHOUT_WITHOUT: (0.048, 0.991),
    }
    for one, (loss, accuracy) in card.items():
        assert abs(measured[one][0] - loss) <= 0.05 * max(loss, 1), f"{one}: {measured[one]}, the card says {loss}"
        assert abs(measured[one][1] - accuracy) <= 0.03, f"{one}: {measured[one]}, the card says {accuracy}"


def test_the_twin_without_a_mask_has_heads_that_copy_and_its_twin_has_none(pair: TwinPair) -> None:
    for text in TEXTS:
        batch = pair.encode(text)
        scores = {one: twins.copy_scores(pair.run(batch, one)) for one in COMBINATIONS}
        assert scores[WITHOUT_WITHOUT].max() >= 0.9
        assert scores[WITH_WITHOUT].max() <= 0.2
        assert scores[WITH_WITH].max() == scores[WITHOUT_WITH].max() == 0.0


def test_the_training_losses_are_those_of_two_twins() -> None:
    curves = twins.curves()
    assert list(curves.steps[[0, -1]]) == [25, 3000]
    first, last = ({way: losses[step] for way, losses in curves.training.items()} for step in (0, -1))
    assert abs(first[True] - first[False]) < 0.3, "they begin alike"
    assert last[False] < 0.1 < 2.5 < last[True] < 3.5
    assert curves.held_out[WITHOUT_WITH][-1] > 10
    own_share = curves.last_token[False][-1] / twins.load().context
    assert_near(torch.tensor(last[False]), torch.tensor(own_share), 0.003, "what is left is the last token's")


def test_one_writes_words_and_the_other_the_same_ones_over_and_over(pair: TwinPair) -> None:
    """Compared are the numbers of different tokens among 48, over three seeds and three prompts."""
    given = [pair.encode(text).ids[0, :12].tolist() for text in TEXTS]
    different = {}
    for trained, model in pair.models.items():
        written = [twins.write(model, ids, causal=trained, seed=seed)[12:] for ids in given for seed in (1, 2, 3)]
        different[trained] = np.mean([len(set(ids)) for ids in written])
    assert different[True] > 1.3 * different[False], different


# the measures


def test_the_copy_score_is_the_mean_of_the_cells_right_of_the_diagonal() -> None:
    weights = torch.tensor([[0.1, 0.9, 0.0], [0.2, 0.2, 0.6], [0.0, 0.0, 1.0]])
    assert float(twins.copy_score(weights)) == pytest.approx(0.75)  # mean of 0.9 and 0.6; the last row has no such cell
    assert float(twins.copy_score(torch.ones(1, 1))) == 0.0


def test_the_scores_are_of_each_head_by_itself(pair: TwinPair) -> None:
    trace = pair.run(pair.encode(TEXTS[0]), WITHOUT_WITHOUT)
    by_hand = torch.tensor(
        [[float(twins.copy_score(trace.weights(layer, head))) for head in range(4)] for layer in range(3)]
    )
    scores = twins.copy_scores(trace)
    assert_near(torch.from_numpy(scores), by_hand, 1e-6)
    assert twins.best_head(scores) == divmod(int(by_hand.argmax()), 4)


def test_an_outcome_is_what_the_logits_say(pair: TwinPair) -> None:
    batch = pair.encode(TEXTS[0])
    trace = pair.run(batch, WITH_WITH)
    found = twins.outcome(trace)
    ids = batch.ids[0]
    chances = trace.logits[0].log_softmax(-1)
    losses = torch.stack([-chances[position - 1, ids[position]] for position in range(1, len(ids))])
    assert_near(torch.from_numpy(found.losses[1:]), losses, 1e-5)
    assert np.isnan(found.losses[0])
    assert found.loss == pytest.approx(float(losses.mean()), abs=1e-5)
    right = [int(chances[position - 1].argmax()) == int(ids[position]) for position in range(1, len(ids))]
    assert found.accuracy == pytest.approx(sum(right) / len(right))
    echoes = [int(chances[position].argmax()) == int(ids[position]) for position in range(len(ids) - 1)]
    assert found.echoes == pytest.approx(sum(echoes) / len(echoes))
    assert_near(torch.from_numpy(found.copies), torch.from_numpy(twins.copy_scores(trace)), 0.0)


def test_a_text_repeats_where_a_token_comes_twice_in_a_row(pair: TwinPair) -> None:
    batch = pair.encode("the the the cat the")
    ids = batch.ids[0].tolist()
    same = [one == other for one, other in pairwise(ids)]
    assert any(same)
    assert twins.repeats(batch) == pytest.approx(sum(same) / len(same))


def test_loss_and_accuracy_of_many_rows_are_those_of_each(pair: TwinPair) -> None:
    batch = pair.encode(TEXTS[1])
    ids, targets = batch.ids[:, :-1], batch.ids[:, 1:]
    loss, accuracy = twins.loss_and_accuracy(pair.models[True], ids, targets, causal=True)
    found = on(pair, TEXTS[1], WITH_WITH)
    assert loss == pytest.approx(found.loss, abs=1e-5)
    assert accuracy == pytest.approx(found.accuracy)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("position", [1, 7, 15])
def test_a_later_token_moves_what_is_before_it(pair: TwinPair, trained: bool, position: int) -> None:
    batch, model = pair.encode(TEXTS[0]), pair.models[trained]
    token = int(batch.ids[0, position]) + 1
    masked = twins.change(model, batch, position, token, causal=True)
    assert masked.earlier() == (0.0, 0.0)
    assert min(masked.later()) > 0.001
    free = twins.change(model, batch, position, token, causal=False)
    assert min(free.earlier()) > 1e-4, free.earlier()


def test_a_change_is_the_difference_of_two_runs(pair: TwinPair) -> None:
    batch, model = pair.encode(TEXTS[0]), pair.models[True]
    other = batch.ids.clone()
    other[0, 9] = 77
    two = [pair.run(TokenBatch(ids, batch.keep, ()), WITH_WITHOUT) for ids in (batch.ids, other)]
    found = twins.change(model, batch, 9, 77, causal=False)
    assert_near(torch.from_numpy(found.logits), (two[1].logits - two[0].logits)[0].abs().amax(-1), 1e-5)
    heads = [(layer, head) for layer in range(3) for head in range(4)]
    each = torch.stack([(two[1].weights(*head) - two[0].weights(*head)).abs().amax(-1) for head in heads])
    rows = each.amax(0)
    assert_near(torch.from_numpy(found.weights), rows, 1e-6)


@pytest.mark.parametrize("position", [0, -1, 500])
def test_only_a_token_of_the_text_can_be_changed(pair: TwinPair, position: int) -> None:
    with pytest.raises(ValueError, match="expected a position from 1 to"):
        twins.change(pair.models[True], pair.encode(TEXTS[0]), position, 5, causal=True)


@pytest.mark.parametrize("one", COMBINATIONS)
def test_writing_draws_from_the_last_token_and_stays_in_the_context(pair: TwinPair, one: Combination) -> None:
    model = pair.models[one.trained]
    given = pair.encode(TEXTS[0]).ids[0, :12].tolist()
    written = twins.write(model, given, causal=one.run, count=3)
    for length in (12, 13, 14):
        ids = torch.tensor([written[:length]])
        logits = model.run(TokenBatch(ids, ids >= 0, ()), MaskSpec(causal=one.run)).logits[0, -1]
        assert written[length] == 2 + int(logits[2:].argmax())
    full = twins.write(model, given, causal=one.run, seed=5, count=1000)
    assert len(full) == pair.context
    assert full[:12] == given
    assert twins.write(model, given, causal=one.run, seed=5, count=20) == full[:32]
    if one.trained:  # its twin repeats itself, whatever the seed
        assert twins.write(model, given, causal=one.run, seed=6, count=20) != full[:32]


# how they are made


def test_only_the_mask_differs_in_a_step() -> None:
    """With one token per row, the mask has nothing to hide."""
    ids, targets = torch.tensor([[3], [5]]), torch.tensor([[4], [6]])
    pair = [training.new_twin(SMALL, causal) for causal in (True, False)]
    for twin in pair:
        twin.step(ids, targets, 1.0)
    one, other = (twin.model.state_dict() for twin in pair)
    assert_near(nn.utils.parameters_to_vector(one.values()), nn.utils.parameters_to_vector(other.values()), 1e-6)


def test_the_losses_are_those_under_the_mask() -> None:
    model = training.new_twin(SMALL, True).model
    ids, targets = torch.tensor([[1, 3, 5, 7]]), torch.tensor([[3, 5, 7, 9]])
    for causal in (True, False):
        states, _ = model(ids, torch.arange(4), masks.causal(4, 4)[None, None] if causal else None)
        chances = model.logits(states)[0].log_softmax(-1)
        by_hand = torch.stack([-chances[position, token] for position, token in enumerate([3, 5, 7, 9])])[None]
        assert_near(token_losses(model, ids, targets, causal), by_hand, 1e-5)


def test_held_out_rows_begin_with_the_start_token(pair: TwinPair) -> None:
    text = "The cat and the dog and the king went to the sea. " * 20
    ids, targets = training.held_out_rows([text], pair.tokenizer, 16, 5)
    assert ids.shape == targets.shape == (5, 16)
    assert (ids[:, 0] == START_ID).all()
    assert torch.equal(ids[:, 1:], targets[:, :-1])
    with pytest.raises(ValueError, match="more tokens than the context, 5,000, got "):
        training.held_out_rows([text], pair.tokenizer, 5_000, 5)


def test_training_stops_both_at_the_same_step_and_writes_what_can_be_read(tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.mkdir()
    (books / "aesop_x.txt").write_text("\n\n".join(["the cat sat on the mat and the dog sat by the cat"] * 60))
    training.train(books, tmp_path / "out", SMALL)
    curves, pair = twins.curves(tmp_path / "out"), twins.load(tmp_path / "out")
    assert list(curves.steps) == [25, 30]
    assert all(np.isfinite(losses).all() for losses in (*curves.training.values(), *curves.held_out.values()))
    assert np.isfinite(on(pair, "the cat", WITHOUT_WITHOUT).loss)


SMALL = training.TwinsRecipe(steps=30, vocabulary=270, context=16, layers=1, heads=2, width=12, rows=3)
