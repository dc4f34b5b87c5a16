"""Tests of activation patching, against hooks on the network's own modules and against the circuit of `by_hand`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from model.base import Model
from model.circuits.patching import (
    MAX_PAIRS,
    Patch,
    PatchMetric,
    PatchPair,
    read_pairs,
)
from model.decoder import DecoderModel
from model.errors import NotSupported
from model.huggingface import adapter
from model.masks import MaskSpec
from model.text import TokenBatch
from serving.settings import Settings
from tests.model.circuits.by_hand import CLEAN, CORRUPT, INDUCTION, PREVIOUS, WORDS
from tests.model.huggingface import families, more_families
from tests.model.huggingface.family import Family

Q, T = WORDS.index("q"), WORDS.index("t")


@pytest.fixture(scope="module")
def pair(known: DecoderModel) -> PatchPair:
    """Return runs where A predicts q after its last token and B predicts t; B is a padded row among others."""
    a, b = known.run(known.encode([CLEAN])), known.run(known.encode(["p", CORRUPT, "p q r t x z y"], "left"))
    return PatchPair(known, a, 0, b, 1)


def head_effects(pair: PatchPair, metric: PatchMetric, layer: int) -> np.ndarray:
    """Return the effect of each head of a layer, then of the whole layer."""
    heads = [[Patch("head", layer, head)] for head in range(pair.b.num_heads)]
    return pair.effects(metric, [*heads, [Patch("layer", layer)]])


def position_effects(pair: PatchPair, metric: PatchMetric, layer: int, begin: int, end: int) -> np.ndarray:
    return pair.effects(metric, [[Patch("position", layer, position)] for position in range(begin, end)])


def metric_of(pair: PatchPair) -> PatchMetric:
    return PatchMetric(pair.b.batch.real(pair.row_b).stop - 1, Q, T)


def test_each_head_of_the_known_circuit_carries_all_of_the_effect_and_no_other_any(
    known: DecoderModel, pair: PatchPair
) -> None:
    metric = metric_of(pair)
    a, b = pair.measured(metric)
    assert a > 1
    assert b < -1
    found = np.stack([head_effects(pair, metric, layer) for layer in (0, 1)])
    shares = found / (a - b)
    assert shares[PREVIOUS] > 0.9
    assert shares[INDUCTION] > 0.9
    shares[PREVIOUS] = shares[INDUCTION] = 0
    assert np.abs(shares[:, :-1]).max() < 0.05
    np.testing.assert_allclose(found[0, -1], found[PREVIOUS], rtol=0.05)  # the whole layer


def test_both_directions(known: DecoderModel, pair: PatchPair) -> None:
    back = PatchPair(known, pair.b, 1, pair.a, 0)
    metric = PatchMetric(pair.a.batch.real(0).stop - 1, Q, T)
    a, b = back.measured(metric)
    assert head_effects(back, metric, 1)[0] / (a - b) > 0.9
    assert pair.measured(metric_of(pair)) == (b, a)


def test_the_path_from_the_previous_token_head_is_into_the_keys(known: DecoderModel, pair: PatchPair) -> None:
    metric = metric_of(pair)
    a, b = pair.measured(metric)
    into = {part: pair.path_effects(metric, INDUCTION, part, 0) / (a - b) for part in ("q", "k", "v")}
    assert into["k"][0] > 0.9
    assert abs(into["k"][1]) < 0.05
    assert max(np.abs(into["q"]).max(), np.abs(into["v"]).max()) < 0.05


def test_positions_of_the_stream(known: DecoderModel, pair: PatchPair) -> None:
    metric, real = metric_of(pair), pair.b.batch.real(1)
    a, b = pair.measured(metric)
    tokens = slice(real.start, real.stop)
    at_last = position_effects(pair, metric, 1, tokens.start, tokens.stop) / (a - b)
    assert at_last[:2] == pytest.approx([0, 0], abs=0.02)
    assert at_last[2] + at_last[4] > 0.9  # the positions after p and after r hold their previous token
    first = position_effects(pair, metric, 0, tokens.start, tokens.stop)
    assert first[[0, 2, 4, 5]] == pytest.approx([0] * 4, abs=1e-5)  # here A and B have the same tokens


def test_several_patches_are_one_run(known: DecoderModel, pair: PatchPair) -> None:
    metric = metric_of(pair)
    _, b = pair.measured(metric)
    for patch, effect in (
        (Patch("head", 0, 0), head_effects(pair, metric, 0)[0]),
        (Patch("layer", 1), head_effects(pair, metric, 1)[2]),
        (Patch("position", 1, metric.query - 3), position_effects(pair, metric, 1, metric.query - 3, 7)[0]),
    ):
        assert pair.patched(metric, [patch])[0] - b == pytest.approx(float(effect), abs=1e-5)
    real = pair.b.batch.real(1)
    everywhere = [Patch("position", 0, position) for position in range(real.start, real.stop)]
    whole = pair.patched(metric, [*everywhere, Patch("head", 1, 1)])
    assert whole[0] == pytest.approx(pair.measured(metric)[0], abs=1e-4)
    assert whole[1][0][0] == "q"
    assert pair.patched(metric, [])[0] == pytest.approx(b, abs=1e-5)


def plain_hook(model: DecoderModel, a: TokenBatch, b: TokenBatch, layer: int, head: int) -> torch.Tensor:
    """Return B's logits with one head's input to the output projection replaced by A's, by torch hooks alone."""
    projection, width = model.network.blocks[layer].attention.output, model.network.config.width
    some = slice(head * width // model.num_heads, (head + 1) * width // model.num_heads)
    captured = []
    hook = projection.register_forward_pre_hook(lambda _, given: captured.append(given[0]))
    model.run(a)
    hook.remove()

    def put(_: object, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        changed = given[0].clone()
        changed[..., some] = captured[0][..., some]
        return (changed,)

    hook = projection.register_forward_pre_hook(put)
    found = model.run(b).logits[0]
    hook.remove()
    return found


def test_equals_plain_hooks(tiny: DecoderModel) -> None:
    a, b = (tiny.encode([text]) for text in ("the cat sat on the mat", "the mat sat on the cat"))
    traces, metric = PatchPair(tiny, tiny.run(a), 0, tiny.run(b), 0), PatchMetric(5, 11)
    before = traces.measured(metric)[1]
    for layer in range(2):
        found = head_effects(traces, metric, layer)
        for head in range(3):
            expected = plain_hook(tiny, a, b, layer, head)[5].log_softmax(-1)[11]
            assert before + found[head] == pytest.approx(float(expected), abs=1e-5)


def test_runs_under_different_masks(tiny: Model) -> None:
    batch = tiny.encode(["the cat sat on the mat"])
    a, b = tiny.run(batch), tiny.run(batch, MaskSpec(causal=False))
    metric = PatchMetric(3, 11, 7)
    pair = PatchPair(tiny, a, 0, b, 0)
    found, both = head_effects(pair, metric, 0), pair.measured(metric)
    every = [Patch("layer", layer) for layer in range(2)]
    assert pair.patched(metric, every)[0] == pytest.approx(both[0], abs=1e-4)
    assert np.abs(found).min() > 0


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_models_of_transformers(name: str, family: Callable[[str], Family]) -> None:
    model = family(name).ours
    a, b = (model.run(model.encode([text])) for text in ("the cat sat on a mat", "the mat sat on a cat"))
    pair, query = PatchPair(model, a, 0, b, 0), b.batch.real(0).stop - 1
    metric = PatchMetric(query, 11, 7)
    wanted = pair.measured(metric)
    every = [Patch("layer", layer) for layer in range(model.num_layers)]
    every += [Patch("position", 0, position) for position in range(query + 1)]
    assert pair.patched(metric, every)[0] == pytest.approx(wanted[0], abs=1e-4)
    heads = head_effects(pair, metric, 1)
    assert pair.patched(metric, [Patch("head", 1, 3)])[0] - wanted[1] == pytest.approx(heads[3], abs=1e-5)
    for part in ("q", "k", "v"):
        assert np.isfinite(pair.path_effects(metric, (2, 1), part, 0)).all()


Put = tuple[torch.nn.Module, str, slice, torch.Tensor]  # module, its "in"put or "out"put, features, new values


def hooked(model: Model, batch: TokenBatch, kept: dict[torch.nn.Module, str], *puts: Put) -> tuple:
    """Return the logits [T,V] of a run changed by torch hooks alone, and some modules' inputs or outputs."""
    seen, hooks = {}, []

    def changing(features: slice, value: torch.Tensor) -> Callable:
        def change(given: torch.Tensor) -> torch.Tensor:
            given = given.clone()
            given[..., features] = value[..., features]
            return given

        return change

    def put_at(change: Callable, side: str) -> Callable:
        if side == "in":
            return lambda _, given: (change(given[0]),)
        return lambda _, given, output: change(output)

    for module, side, features, value in puts:
        hang = module.register_forward_pre_hook if side == "in" else module.register_forward_hook
        hooks.append(hang(put_at(changing(features, value), side)))
    for module, side in kept.items():
        keep = lambda one, given, output, side=side: seen.update({one: (given[0] if side == "in" else output).clone()})  # noqa: E731
        hooks.append(module.register_forward_hook(keep))
    logits = model.run(batch).logits[0]
    for hook in hooks:
        hook.remove()
    return logits, seen


def test_grouped_queries_and_rotary_positions_equal_plain_hooks_both_ways(family: Callable[[str], Family]) -> None:
    model = family("llama").ours
    layers = [layer.self_attn for layer in model.network.model.layers]
    heads, shared = model.num_heads, len(set(model.key_value_heads))
    assert shared < heads
    texts = [model.encode([text]) for text in ("the cat sat on a mat", "the mat sat on a cat")]
    receiver, width = (2, 1), layers[0].o_proj.in_features // heads
    for a, b in (texts, texts[::-1]):
        pair, query = PatchPair(model, model.run(a), 0, model.run(b), 0), b.real(0).stop - 1
        metric = PatchMetric(query, 11, 7)
        value = lambda logits, query=query: float(logits[query, 11] - logits[query, 7])  # noqa: E731
        outs = {layer.o_proj: "in" for layer in layers}
        in_a, (plain, in_b) = hooked(model, a, outs)[1], hooked(model, b, outs)
        part = lambda head: slice(head * width, (head + 1) * width)  # noqa: E731
        for number, layer in enumerate(layers):
            found = head_effects(pair, metric, number)
            for head in range(heads):
                logits, _ = hooked(model, b, {}, (layer.o_proj, "in", part(head), in_a[layer.o_proj]))
                assert found[head] == pytest.approx(value(logits) - value(plain), abs=1e-5)
        later, frozen = layers[receiver[0]], layers[1].o_proj
        for into, projection in (("q", later.q_proj), ("k", later.k_proj), ("v", later.v_proj)):
            found = pair.path_effects(metric, receiver, into, 0)
            for head in range(heads):
                send = (layers[0].o_proj, "in", part(head), in_a[layers[0].o_proj])
                hold = (frozen, "in", slice(None), in_b[frozen])
                arrived = hooked(model, b, {projection: "out"}, send, hold)[1][projection]
                mixed = hooked(model, b, {later.o_proj: "in"}, (projection, "out", slice(None), arrived))[1][
                    later.o_proj
                ]
                logits, _ = hooked(model, b, {}, (later.o_proj, "in", part(receiver[1]), mixed))
                assert found[head] == pytest.approx(value(logits) - value(plain), abs=1e-5), into
            assert np.abs(found).max() > 1e-6


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_run_patched_with_itself_is_the_same_run_in_16_bits_too(precision: str, tmp_path: Path) -> None:
    model = adapter.load(str(families.save("llama", tmp_path)), settings=Settings(precision=precision))
    run, metric = model.run(model.encode(["the cat sat on a mat"])), PatchMetric(6, 11, 7)
    pair = PatchPair(model, run, 0, run, 0)
    for layer in range(model.num_layers):
        np.testing.assert_array_equal(head_effects(pair, metric, layer), 0)
    for part in ("q", "k", "v"):
        np.testing.assert_array_equal(pair.path_effects(metric, (2, 1), part, 0), 0)


def test_a_position_of_a_hybrid_enters_the_layer_that_attends(tmp_path: Path) -> None:
    folder = families.save("lfm2", tmp_path, more_families.HYBRIDS["lfm2"])
    model = adapter.load(str(folder), settings=Settings())
    a, b = (model.encode([text]) for text in ("the cat sat on a mat", "the mat sat on a cat"))
    pair = PatchPair(model, model.run(a), 0, model.run(b), 0)
    attends, position, last = model.network.model.layers[1], 2, b.real(0).stop - 1  # layer 0 is a convolution
    captured: list[torch.Tensor] = []
    hook = attends.register_forward_pre_hook(lambda _, given: captured.append(given[0]))
    model.run(a)
    hook.remove()

    def put(_: object, given: tuple[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        given[0][:, position] = captured[0][:, position]
        return given

    hook = attends.register_forward_pre_hook(put)
    expected = model.run(b).logits[0, last].log_softmax(-1)[11]
    hook.remove()
    found = pair.patched(PatchMetric(last, 11), [Patch("position", 0, position)])[0]
    assert found == pytest.approx(float(expected), abs=1e-5)


def test_what_cannot_be_patched_is_refused(tiny: Model, family: Callable[[str], Family]) -> None:
    a, b = (tiny.run(tiny.encode([text])) for text in ("the cat", "the cat sat on the mat"))
    with pytest.raises(ValueError, match=r"the same number of tokens in A and B: A has \d+, B has \d+"):
        PatchPair(tiny, a, 0, b, 0)
    with pytest.raises(ValueError, match="expected a head from 0 to 2, got 3"):
        PatchPair(tiny, a, 0, a, 0).patched(PatchMetric(1, 2), [Patch("head", 1, 3)])
    bert = family("bert").ours
    run = bert.run(bert.encode(["the cat"]))
    with pytest.raises(NotSupported, match="one stack"):
        PatchPair(bert, run, 0, run, 0)


def test_pairs_of_texts_from_a_file() -> None:
    head = "answer,a,b,instead_of\n"
    assert read_pairs(f"{head} q,one,two, t\n".encode()) == [
        {"a": "one", "b": "two", "answer": " q", "instead_of": " t"}
    ]
    for wrong in (
        b"",
        b"\xff\xfe",
        b"a,b\n1,2\n",
        f"{head}q,one,,t\n".encode(),
        head.encode() + b"q,one,two,t\n" * (MAX_PAIRS + 1),
        head.encode() + b"q,one," + b"x" * 200_000 + b",t\n",
    ):
        with pytest.raises(ValueError, match="columns a, b, answer and instead_of, and 1 to 64 pairs"):
            read_pairs(wrong)
