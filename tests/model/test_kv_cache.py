"""Tests of the key-value cache against the full run: equal under the causal mask, different without; and its costs.

Differences in float32 are rounding: they are measured relative to the numbers, and vanish in float64.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from model import catalog, kv_cache, masks
from model.base import Model
from model.blocks import positions_of
from model.kv_cache import (
    Cost,
    StepTiming,
    batch_of,
    cache_of,
    compare,
    cut,
    old_rows,
    step,
    trace_by_cached_steps,
    with_next_token,
)
from model.masks import MaskSpec
from model.spec import Stroke
from model.trace import Trace
from tests.model.huggingface.families import save
from tests.model.random_specs import built
from tests.tensors import assert_near

CAUSAL, LIFTED = MaskSpec(), MaskSpec(causal=False)
TEXTS = [
    "Once upon a time there was a little girl who lived in the wood",
    "Zxqv 123 !!! ünïcode 漢字",
    "Peter blew his silver whistle twice, and Peter blew his silver",
]


def ids_of(model: Model, text: str) -> tuple[int, ...]:
    return tuple(model.encode([text]).ids[0].tolist())


class TestAStep:
    @pytest.mark.parametrize("text", TEXTS)
    @pytest.mark.parametrize("name", ["story", "tiny"])
    def test_equals_the_full_run_at_every_position(self, request: pytest.FixtureRequest, name: str, text: str) -> None:
        model = request.getfixturevalue(name)
        found = compare(model, ids_of(model, text), 1)
        for what, most in (("rows", found.rows), ("probabilities", found.probabilities)):
            assert float(most.max()) <= 1e-5, f"{what}: the largest difference is {float(most.max()):.3g}"
        relative = float(found.logits.max()) / found.size
        assert relative <= 1e-5, f"logits: the largest difference is {relative:.3g} of their size"
        assert found.guesses[0] == found.guesses[1]

    @pytest.mark.parametrize("text", TEXTS)
    def test_equals_it_to_a_billionth_in_float64(self, story: Model, text: str) -> None:
        found = kv_cache.compare_in_float64(story, ids_of(story, text), 1)
        assert float(found.logits.max()) <= 1e-9, f"the largest difference is {float(found.logits.max()):.3g}"

    def test_holds_over_a_whole_context(self, tiny: Model) -> None:
        ids = tuple(torch.randint(5, 277, (tiny.context,), generator=torch.Generator().manual_seed(0)).tolist())
        found = compare(tiny, ids, 1)
        assert len(found.logits) == tiny.context - 1
        assert float(found.rows.max()) <= 1e-5

    def test_has_the_mask_of_one_query(self, tiny: Model) -> None:
        ids = ids_of(tiny, "the cat sat")
        made = built(CAUSAL, torch.ones(1, len(ids), dtype=torch.bool), queries=1)
        assert list(made) == ["causal"]
        found = compare(tiny, ids, len(ids) - 1)
        assert torch.equal(found.allowed, masks.combine(made)[0, 0])
        assert bool(found.allowed.all()), "the newest position may attend to all before it"
        assert torch.equal(found.square, torch.ones(len(ids), len(ids), dtype=torch.bool).tril())

    @pytest.mark.parametrize(
        "spec",
        [MaskSpec(sliding=3), MaskSpec(stride=2), MaskSpec(sliding=2, sinks=1), MaskSpec(sliding=2, layers=(1,)),
         MaskSpec(sliding=3, heads=(0, 2)), MaskSpec(drawn=(Stroke("block", 4, 0, 9, 3),))],
        ids=["window", "stride", "sinks", "one layer", "two heads", "drawn"],
    )  # fmt: skip
    def test_equals_the_full_run_under_any_mask_that_is_causal_too(self, tiny: Model, spec: MaskSpec) -> None:
        found = compare(tiny, ids_of(tiny, "the cat sat on the mat and"), 1, spec)
        assert float(found.rows.max()) <= 1e-5
        assert float(found.probabilities.max()) <= 1e-5
        assert not bool(found.allowed.all()) or spec.layers or spec.heads

    def test_leaves_its_cache_and_the_model_as_they_were(self, tiny: Model) -> None:
        ids = ids_of(tiny, "the cat sat")
        cache, attributes = cache_of(tiny.run(batch_of(tiny, ids))), set(vars(tiny))
        before = [(k.clone(), v.clone()) for k, v in cache]
        _, longer = step(tiny, cache, ids[0])
        assert all(k.shape[2] == v.shape[2] == len(ids) + 1 for _, k, v in longer)
        for old, new in zip(before, cache, strict=True):
            assert all(map(torch.equal, old, new))
        assert set(vars(tiny)) == attributes
        bytes_kept = 2 * 2 * len(ids) * 21 * 4  # keys and values, layers, positions, width, float32
        assert compare(tiny, (*ids, 7), len(ids)).cache_bytes == bytes_kept

    def test_says_what_it_cannot_do(self, tiny: Model, tmp_path: Path) -> None:
        full = (7,) * tiny.context
        with pytest.raises(ValueError, match="expected at most 151 tokens"):
            step(tiny, cache_of(tiny.run(batch_of(tiny, full))), 7)
        with pytest.raises(ValueError, match="expected ids from 0 to 282, got 283"):
            step(tiny, cache_of(tiny.run(batch_of(tiny, (7, 8)))), 283)
        for start in (0, 2):
            with pytest.raises(ValueError, match="expected a start from 1 to 1"):
                compare(tiny, (7, 8), start)
        other = catalog.load(str(save("llama", tmp_path)))
        assert kv_cache.network_of(other) is None
        with pytest.raises(ValueError, match="Unmask's Transformer"):
            step(other, cache_of(tiny.run(batch_of(tiny, (7, 8)))), 7)


class TestATraceThatGrows:
    def test_is_that_of_a_full_run(self, tiny: Model) -> None:
        ids = ids_of(tiny, "the cat sat on the mat")
        full, trace = tiny.run(batch_of(tiny, ids)), tiny.run(batch_of(tiny, ids[:3]))
        for token in ids[3:]:
            trace = with_next_token(tiny, trace, token)
        same(trace, full)

    def test_is_cut_at_any_position(self, tiny: Model) -> None:
        ids = ids_of(tiny, "the cat sat on the mat")
        same(cut(tiny, tiny.run(batch_of(tiny, ids)), 4), tiny.run(batch_of(tiny, ids[:4])))

    @pytest.mark.parametrize("others", [(9, 8), (), (9,)])
    def test_follows_another_text_with_the_same_beginning(self, tiny: Model, others: tuple[int, ...]) -> None:
        ids = ids_of(tiny, "the cat sat on the mat")
        wanted = (*ids[:4], *others)
        same(trace_by_cached_steps(tiny, tiny.run(batch_of(tiny, ids)), wanted), tiny.run(batch_of(tiny, wanted)))

    def test_keeps_the_rows_it_has(self, tiny: Model) -> None:
        ids = ids_of(tiny, "the cat sat")
        trace = tiny.run(batch_of(tiny, ids))
        longer = trace_by_cached_steps(tiny, trace, (*ids, 9))
        assert torch.equal(longer.states[:, :-1], trace.states)

    def test_cannot_follow_what_begins_differently(self, tiny: Model) -> None:
        with pytest.raises(ValueError, match="begin with the same token"):
            trace_by_cached_steps(tiny, tiny.run(batch_of(tiny, (7, 8))), (8, 8))


def same(found: Trace, expected: Trace) -> None:
    assert torch.equal(found.batch.ids, expected.batch.ids)
    assert found.batch.pieces == expected.batch.pieces
    assert_near(found.logits, expected.logits, 1e-5, "logits")
    for layer in range(expected.num_layers):
        for head in range(expected.num_heads):
            assert_near(found.weights(layer, head), expected.weights(layer, head), 1e-5, f"L{layer} H{head}")


class TestTheCausalMaskLifted:
    @pytest.mark.parametrize("text", TEXTS)
    def test_old_rows_stay_under_it_and_change_without_it(self, story: Model, text: str) -> None:
        ids = ids_of(story, text)
        on, off = old_rows(story, ids, CAUSAL), old_rows(story, ids, LIFTED)
        assert len(on.rows) == len(on.logits) == len(ids) - 1
        for what in ("rows", "weights", "cache", "logits"):
            largest = float(getattr(on, what).max())
            assert largest <= (2e-5 if what in ("logits", "cache") else 1e-5), f"{what} changed by {largest:.3g}"
        assert bool((off.rows > 1e-3).all()), "every old row changes"
        assert float(off.cache[0]) <= 1e-5, "layer 0's keys and values are made of token and position alone"
        assert bool((off.cache[1:] > 1e-2).all()), "later layers' are not"
        assert float(off.logits.max()) > 0.1

    def test_the_numbers_are_those_of_the_two_runs(self, tiny: Model) -> None:
        ids = ids_of(tiny, "the cat sat on")
        found = old_rows(tiny, ids, LIFTED)
        short, long = tiny.run(batch_of(tiny, ids[:-1]), LIFTED), tiny.run(batch_of(tiny, ids), LIFTED)
        for row in range(len(ids) - 1):
            changes = [
                max(
                    float((long.weights(layer, head)[row, :-1] - short.weights(layer, head)[row]).abs().max()),
                    float(long.weights(layer, head)[row, -1]),
                )
                for layer in range(2)
                for head in range(3)
            ]
            assert float(found.rows[row]) == pytest.approx(max(changes), abs=1e-6)
        assert_near(found.logits, (long.logits[0, :-1] - short.logits[0]).abs().amax(-1), 1e-5, "logits")

    def test_the_cached_step_is_wrong_without_it(self, story: Model) -> None:
        ids = ids_of(story, TEXTS[0])
        right, wrong = (compare(story, ids, len(ids) - 1, spec) for spec in (CAUSAL, LIFTED))
        assert float(right.logits.max()) <= 2e-5
        assert float(wrong.logits.max()) > 0.1
        assert float(wrong.rows[:, 0].max()) <= 1e-5, "layer 0 still has the right keys"
        assert float(wrong.rows[:, 1:].max()) > 1e-3
        assert bool(wrong.square.all())

    def test_needs_two_tokens(self, tiny: Model) -> None:
        with pytest.raises(ValueError, match="at least 2 tokens"):
            old_rows(tiny, (7,), CAUSAL)


class TestCosts:
    @pytest.mark.parametrize(("queries", "keys"), [(1, 1), (7, 7), (1, 7), (1, 150)])
    def test_are_what_torch_counts(self, tiny: Model, queries: int, keys: int) -> None:
        network = kv_cache.network_of(tiny)
        assert network is not None
        ids = torch.arange(keys)[None] + 5
        whole = tiny.run(batch_of(tiny, tuple(ids[0].tolist())))
        plain = sdpa_kernel(SDPBackend.MATH)  # its two products are counted; the fused kernel's are not
        with FlopCounterMode(display=False) as counter, torch.no_grad(), plain:
            if queries == keys:
                states, _ = network(ids, positions_of(torch.ones(1, keys, dtype=torch.bool)), None)
                network.logits(states[0, -1:])
            else:
                network.logits(step(tiny, cache_of(whole, keys - 1), int(ids[0, -1]))[0][0])
        assert 2 * kv_cache.multiply_adds(network.config, queries, keys) == counter.get_total_flops()

    @pytest.mark.parametrize(
        ("tokens", "expected"), [(0, []), (1, []), (2, [2]), (3, [2, 3]), (5, [2, 3, 4, 5]), (200, None)]
    )
    def test_are_measured_from_the_first_step_to_the_last(self, tokens: int, expected: list[int] | None) -> None:
        every = kv_cache.plan(tokens)
        found = every[: len(every) // kv_cache.ROUNDS]
        assert every == found * kv_cache.ROUNDS
        if expected is None:
            assert (found[0], found[-1], len(found)) == (2, 200, kv_cache.MAX_MEASURED)
        else:
            assert found == expected

    def test_are_measured_one_after_the_other(self, tiny: Model) -> None:
        ids = ids_of(tiny, "the cat sat on the mat")
        whole = tiny.run(batch_of(tiny, ids))
        found = [kv_cache.measure(tiny, whole, length) for length in (2, 5, 2, 5)]
        assert [one.length for one in found] == [2, 5, 2, 5]
        assert all(one.full > 0 and one.cached > 0 for one in found)

    def test_are_tried_in_rounds(self) -> None:
        assert kv_cache.plan(3) == [2, 3] * kv_cache.ROUNDS

    def test_are_those_of_the_quickest_try(self) -> None:
        tries = [
            StepTiming(2, 11.4, 3.0),
            StepTiming(9, 7.0, 2.5),
            StepTiming(2, 4.0, 2.0),
            StepTiming(9, 8.0, 9.0),
            StepTiming(2, 5.0, 2.2),
        ]
        assert kv_cache.costs(tries) == [Cost(2, 4.0, 2.0, 5.0), Cost(9, 7.0, 2.5, 7.5)]

    @pytest.mark.parametrize(
        ("first", "last", "expected"),
        [
            (Cost(2, 4.0, 2.0, 5.0), Cost(9, 7.0, 2.5, 7.5), True),
            (Cost(2, 11.4, 2.0, 11.4), Cost(9, 7.0, 2.5, 7.5), False),  # the shortest text only seems slower
            (Cost(2, 4.0, 2.0, 7.2), Cost(9, 7.0, 2.5, 7.5), False),  # repetitions of one step differ as much
            (Cost(2, 4.0, 7.1, 5.0), Cost(9, 7.0, 2.5, 7.5), False),  # a cached step was as slow
        ],
    )
    def test_are_clear_where_steps_differ(self, first: Cost, last: Cost, expected: bool) -> None:
        assert kv_cache.times_match_counts([first, last]) is expected
        assert kv_cache.times_match_counts([last]) is False


def test_ids_become_a_batch_as_if_they_were_read(tiny: Model) -> None:
    read = tiny.encode(["the cat"])
    made = batch_of(tiny, tuple(read.ids[0].tolist()))
    assert torch.equal(made.ids, read.ids)
    assert bool(made.keep.all())
    assert made.pieces == read.pieces
    assert replace(made, texts=("",)).cut == read.cut
