"""Tests of a head atlas: its sums against all weights of a run, its sample, facts about trained and random models."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
import torch

from model.atlas import batch as atlas_batch
from model.atlas import unit as atlas_unit
from model.atlas.result import MIN_QUERIES, NAMED, NAMES, Atlas, atlas_of
from model.atlas.tally import SAMPLED, TOP_KEYS, Tally
from model.atlas.unit import (
    Unit,
    batch_of,
    empty_tally,
    in_units,
    measure_unit,
    only_punctuation,
    priorities,
    row_length,
    rows_of_unit,
    sampled,
    units_of_random,
    units_of_sample,
)
from model.base import CHECKPOINTS, Model
from model.decoder import DecoderModel
from model.masks import MaskSpec
from model.training.story import head_scores
from model.transformer import Transformer, TransformerConfig

TEXTS = (
    "the cat sat on the mat, and the cat sat still.",
    "the mat",
    "a cat; a cat; the cat sat on a cat",
    "the",
    "mat mat mat mat",
)
LENGTH = 31
OPEN = MaskSpec(causal=False)


def tally_of(model: Model, units: Iterable[Unit], masks: MaskSpec | None = None, length: int = LENGTH) -> Tally:
    tally = empty_tally(model, length)
    for unit in units:
        tally.add(measure_unit(model, unit, masks or model.standard, length))
    return tally


def atlas_over(model: Model, units: Iterable[Unit], masks: MaskSpec | None = None, length: int = LENGTH) -> Atlas:
    return atlas_of(tally_of(model, units, masks, length), model.label)


@pytest.mark.parametrize("masks", [MaskSpec(), OPEN])
def test_the_sums_are_those_of_every_weight(tiny: Model, masks: MaskSpec) -> None:
    """The expected sums are computed query by query in Python, from a run of each text alone."""
    unit = Unit(0, 0, 0, TEXTS)
    found = atlas_over(tiny, [unit], masks)
    sums = {name: np.zeros((2, 3)) for name in ("previous", "first", "same", "duplicate", "peak", "leak")}
    counts = dict.fromkeys(sums, 0)
    back: dict[int, list[np.ndarray]] = {}
    received: dict[int, np.ndarray] = {}
    for row in rows_of_unit(tiny, unit, LENGTH):
        size = len(row.ids)
        if size < 2:
            continue
        trace = tiny.run(batch_of([row]), masks)
        weights = torch.stack([torch.stack([trace.weights(layer, head) for head in range(3)]) for layer in range(2)])
        w = weights.numpy().astype(np.float64)  # [L,H,T,T]
        for query in range(0 if masks == OPEN else 1, size):
            keys = range(size if masks == OPEN else query + 1)
            cells = {
                "previous": [query - 1] if query > 1 else [],  # query 1 has only the row's first token before it
                "first": [0] if query else [],
                "same": [query],
                "duplicate": [key for key in range(query) if row.ids[key] == row.ids[query]],
            }
            for name, some in cells.items():
                if some:
                    sums[name] += w[:, :, query, some].sum(-1)
                    counts[name] += 1
            sums["peak"] += w[:, :, query, 1:].max(-1)
            sums["leak"] += w[:, :, query, query + 1 :].sum(-1)
            counts["peak"] += 1
            counts["leak"] += 1
            for key in keys:
                back.setdefault(query - key, []).append(w[:, :, query, key])
                received[row.ids[key]] = received.get(row.ids[key], 0) + w[:, :, query, key]
    for name, total in sums.items():
        assert np.allclose(found.measure(name), total / counts[name], atol=1e-6), name
        assert (found.counts[NAMES.index(name)] == counts[name]).all(), name
    for distance, cells_there in back.items():
        assert np.allclose(found.back(distance), np.mean(cells_there, 0), atol=1e-6), distance
    all_of_it = sum(received.values())
    for head in np.ndindex(2, 3):
        shares = {one.token: one.share for one in found.key_tokens(*head)}
        for token, total in received.items():
            if tiny.label(token) in shares:
                assert shares[tiny.label(token)] == pytest.approx((total / all_of_it)[head], abs=1e-5)
        assert sum(found.spread[head]) == pytest.approx(1)


def test_an_even_head_is_one_over_the_open_cells(tiny: Model) -> None:
    """Of the start token and two more, query 1 sees two keys, query 2 three; only query 2 counts for `previous`."""
    found = atlas_over(tiny, [Unit(0, 0, 0, ("the mat",))])
    size = found.read
    assert size == 3
    even = found.even[:, 0]
    assert even[NAMES.index("previous")] == pytest.approx(1 / 3)
    assert even[NAMES.index("entropy")] == pytest.approx((1 + np.log2(3)) / 2)
    assert even[NAMES.index("distance")] == pytest.approx((1 / 2 + 1) / 2)
    assert np.isnan(even[NAMES.index("duplicate")])


@pytest.mark.parametrize(("name", "value"), [("BATCH_TOKENS", 40), ("BLOCK_BYTES", 4 * 3 * 31 * 2)])
def test_batches_change_no_number(tiny: Model, monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    whole = tally_of(tiny, [Unit(0, 0, 0, TEXTS)])
    monkeypatch.setattr(atlas_unit if name == "BATCH_TOKENS" else atlas_batch, name, value)
    parts = tally_of(tiny, [Unit(0, 0, 0, TEXTS)])
    assert_same(whole, parts)


def test_two_tallies_add_up_to_that_of_all_texts(tiny: Model) -> None:
    """Units are added in either order, and to a tally that was saved to bytes and loaded."""
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS * 9)]
    units = list(in_units(iter(texts)))
    assert len(units) == 2
    forward, backward = tally_of(tiny, units), tally_of(tiny, units[::-1])
    restored = Tally.from_bytes(tally_of(tiny, units[:1]).to_bytes())
    restored.add(measure_unit(tiny, units[1], tiny.standard, LENGTH, restored.sample.bar))
    for other in (backward, restored):
        assert_same(forward, other)
    assert len(forward.sample) == SAMPLED


@pytest.mark.parametrize("data", [b"", b"nothing", b"PK\x03\x04" + b"x" * 50])
def test_a_damaged_tally_is_a_sentence(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected a saved tally"):
        Tally.from_bytes(data)


def test_the_sample_is_of_every_query_alike(tiny: Model) -> None:
    """All 4,000 queries are equally likely to be kept: those kept are spread over rows and positions."""
    (row,) = rows_of_unit(tiny, Unit(0, 0, 0, ("the " * 40,)), 41)
    rows = [row] * 100
    chosen = sampled(rows, Unit(3, 5))
    assert len(chosen) == SAMPLED
    many = len(rows[0].ids) - 1
    assert abs(chosen["row"].mean() - 49.5) < 4
    assert abs(chosen["at"].mean() - (many + 1) / 2) < 0.08 * many
    assert (np.diff(chosen["priority"].astype(float)) >= 0).all()
    other = sampled(rows, Unit(3, 6))
    shared = set(zip(chosen["row"], chosen["at"], strict=True)) & set(zip(other["row"], other["at"], strict=True))
    assert len(shared) < 80  # two draws of 400 out of 4,000 share about 40
    every = priorities(Unit(0, 0), np.arange(5000), np.ones(5000, int)).astype(float) / 2**64
    assert abs(every.mean() - 0.5) < 0.02
    assert len(np.unique(every)) == 5000


@pytest.mark.parametrize("masks", [MaskSpec(), OPEN, MaskSpec(prefix=3)])
def test_every_query_with_a_choice_may_be_sampled(tiny: Model, masks: MaskSpec) -> None:
    """This includes a row's first token where it may attend to others."""
    found = atlas_over(tiny, [Unit(0, 0, 0, TEXTS)], masks)
    for name in NAMES:
        sampled_of = sum(decile.queries for decile in found.deciles(name, 1, 2))
        assert sampled_of == found.counts[NAMES.index(name), 1], name


def test_the_deciles_are_tenths_of_the_sample_the_strongest_first(tiny: Model) -> None:
    found = atlas_over(tiny, units_of_sample())
    values = found.sample.values[:, NAMES.index("peak"), 1, 2]
    deciles = found.deciles("peak", 1, 2, each=2)
    assert [one.number for one in deciles] == list(range(10, 0, -1))
    assert sum(one.queries for one in deciles) == (~np.isnan(values)).sum()
    assert deciles[0].high == np.nanmax(values)
    assert deciles[-1].low == np.nanmin(values)
    for stronger, weaker in pairwise(deciles):
        assert stronger.low >= weaker.high
    for decile in deciles:
        assert len(decile.examples) == 2
        assert all(decile.low <= example.value <= decile.high for example in decile.examples)


def test_an_example_is_what_the_head_does_there(tiny: Model) -> None:
    """Reference: the row run alone, for the query's largest weights and for the measure itself."""
    found = atlas_over(tiny, units_of_sample())
    texts = [text for unit in units_of_sample() for text in unit.texts]
    for layer, head in ((0, 1), (1, 2)):
        (strongest, *_) = found.deciles("previous", layer, head)
        for example in strongest.examples:
            batch = tiny.encode([example.text])
            assert batch.pieces[0][: len(example.pieces)] == example.pieces
            weights = tiny.run(batch).weights(layer, head)[example.query]
            assert float(weights[example.query - 1]) == pytest.approx(example.value, abs=1e-5)
            top = weights.topk(min(TOP_KEYS, example.query + 1))
            assert [weight for _, weight in example.keys] == pytest.approx(top.values.tolist(), abs=1e-5)
            assert example.text in texts[example.number]


def test_a_measure_that_counts_nowhere_is_nan_and_names_nothing(tiny: Model) -> None:
    found = atlas_over(tiny, [Unit(0, 0, 0, ("the cat",))])
    assert np.isnan(found.measure("induction")).all()
    assert found.deciles("induction", 0, 0) == []
    assert found.named(0, 0) == ()
    assert np.isnan(found.back(-1)).all()
    with pytest.raises(ValueError, match="expected at most 30 tokens back, got 31"):
        found.back(31)


def test_nothing_at_all_is_no_atlas_and_no_error(tiny: Model) -> None:
    found = atlas_over(tiny, [Unit(0, 0, 0, ("the",))] if tiny.encode(["the"]).ids.shape[1] == 1 else [])
    assert found.rows == 0
    assert np.isnan(found.means).all()
    assert found.key_tokens(0, 0) == []


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (",", True),
        ("·,", True),
        (',"', True),
        ("·—", True),
        ("·", False),
        ("a", False),
        ("·a.", False),
        ("$", False),
        ("⏎", False),
    ],
)
def test_what_punctuation_is(label: str, expected: bool) -> None:
    assert only_punctuation(label) is expected


def test_masks_of_some_heads_are_refused(tiny: Model) -> None:
    for masks in (MaskSpec(heads=(1,)), MaskSpec(padding=False)):
        with pytest.raises(ValueError, match="expected masks of all layers and heads"):
            measure_unit(tiny, Unit(0, 0, 0, TEXTS), masks, LENGTH)


def test_on_random_tokens_the_story_model_s_induction_heads_are_those_of_its_card(story: Model) -> None:
    """The model card, measured by head_scores, states seven heads of at least 0.5, the best in layer 5, head 2."""
    found = atlas_over(story, units_of_random(story), length=row_length(story))
    named = {head for head in np.ndindex(6, 6) if "induction" in found.named(*head)}
    assert isinstance(story, DecoderModel)
    scores, _ = head_scores(story.network)
    assert named == {head for head in np.ndindex(6, 6) if scores[head] >= 0.5}
    assert len(named) == 7
    assert np.unravel_index(found.measure("induction").argmax(), (6, 6)) == (5, 2)
    card = (CHECKPOINTS / "story" / "README.md").read_text(encoding="utf-8")
    assert "heads with an induction score of at least 0.5: 7" in card
    assert "best induction head: layer 5, head 2" in card


def test_on_texts_its_previous_token_head_is_that_of_its_card(story: Model) -> None:
    found = atlas_over(story, units_of_sample(), length=row_length(story))
    assert found.named(0, 3) == ("previous",)
    assert [head for head in np.ndindex(6, 6) if "previous" in found.named(*head)] == [(0, 3)]


@pytest.mark.slow
def test_no_untrained_model_has_a_head_with_a_name(story: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 random models, with weights as large as a trained model's may be, on random tokens and on texts."""
    assert isinstance(story, DecoderModel)
    monkeypatch.setattr(atlas_unit, "RANDOM_ROWS", 3)
    monkeypatch.setattr(atlas_unit, "RANDOM_SPAN", 23)
    random_units, text_units = units_of_random(story), [Unit(0, 0, 0, units_of_sample()[0].texts[:4])]
    config = TransformerConfig(vocabulary=4096, context=64, layers=2, heads=3, width=24)
    highest = 0.0
    for seed in range(100):
        torch.manual_seed(seed)
        network = Transformer(config)
        for name, parameter in network.named_parameters():
            if parameter.ndim == 2 and "embedding" not in name:
                parameter.data.mul_(1 + seed % 4)
        model = DecoderModel("untrained", network, story.tokenizer)
        for units in (random_units, text_units):
            found = atlas_over(model, units, length=48)
            assert (found.counts[NAMES.index("induction")] >= MIN_QUERIES).all() or units is text_units
            assert not [head for head in np.ndindex(2, 3) if found.named(*head)], seed
            highest = max(highest, float(np.nanmax(found.measure("induction"))))
    assert 0.02 < highest < NAMED


def assert_same(one: Tally, other: Tally) -> None:
    """Assert that two tallies are equal up to rounding."""
    assert (one.texts, one.rows, one.read) == (other.texts, other.rows, other.read)
    for name in ("sums", "uniform", "offsets", "even", "key_weight", "query_peak"):
        assert np.allclose(getattr(one, name), getattr(other, name), rtol=1e-5, atol=1e-4), name
    for name in ("counts", "cells", "tokens", "key_count", "query_count"):
        assert (getattr(one, name) == getattr(other, name)).all(), name
    for name in ("priority", "place", "keys"):
        assert (getattr(one.sample, name) == getattr(other.sample, name)).mean() > 0.999, name
    assert one.sample.texts == other.sample.texts
    assert one.sample.ids == other.sample.ids
    assert np.allclose(one.sample.values, other.sample.values, atol=1e-5, equal_nan=True)
