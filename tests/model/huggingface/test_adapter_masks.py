"""Tests of Hugging Face models under composed masks: windows, masks of some layers or heads, packed documents."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from model.masks import MaskSpec
from model.text import TokenBatch
from tests.model.huggingface import families
from tests.model.huggingface.family import LOGITS, TEXTS, Family
from tests.tensors import assert_near, largest_difference


@pytest.mark.parametrize(("name", "size"), [("mistral", 3), ("phi3", 5)])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_a_window_as_wide_as_its_own(loaded: dict[str, Family], name: str, size: int, padding: str) -> None:
    usual = loaded[name].run(padding)
    instead = loaded[name].run(padding, MaskSpec(window=False, sliding=size))
    assert set(instead.blocked_by(0)) == {"causal", "padding", "sliding"}
    assert largest_difference(instead.logits, usual.logits) == 0
    assert largest_difference(loaded[name].run(padding, MaskSpec(window=False)).logits, usual.logits) > 1e-3


def test_a_window_for_the_layers_that_have_one_is_the_models_own(loaded: dict[str, Family]) -> None:
    """The spec applies to Gemma's first and third layers; the second keeps its standard masks, without a window."""
    usual = loaded["gemma2"].run("left")
    instead = loaded["gemma2"].run("left", MaskSpec(window=False, sliding=3, layers=(0, 2)))
    assert largest_difference(instead.logits, usual.logits) == 0
    everywhere = loaded["gemma2"].run("left", MaskSpec(window=False, sliding=3))
    assert largest_difference(everywhere.logits, usual.logits) > 1e-3


@pytest.mark.parametrize("name", ["llama", "gemma2", "mistral", "bert"])
def test_masks_hold_in_their_layer_alone(loaded: dict[str, Family], name: str) -> None:
    family = loaded[name]
    usual = family.run("left")
    run = family.run("left", replace(family.ours.standard, stride=2, layers=(1,)))
    for layer in range(3):
        assert torch.equal(run.layers[layer].q, usual.layers[layer].q) == (layer < 2)
        assert ("stride" in run.blocked_by(layer)) == (layer == 1)
        for head, row in product(range(4), range(len(TEXTS))):
            difference = largest_difference(run.weights(layer, head, row), usual.weights(layer, head, row))
            assert difference == 0 if layer < 1 else difference > 1e-4


def test_of_the_heads_that_share_a_key_one_can_be_masked(loaded: dict[str, Family]) -> None:
    family = loaded["llama"]
    usual, run = family.run("left"), family.run("left", MaskSpec(causal=False, heads=(1,)))
    assert [family.ours.key_value_heads[head] for head in (0, 1)] == [0, 0]
    for head in range(4):
        assert ("causal" in run.blocked_by(0, head=head)) == (head != 1)
        difference = largest_difference(run.weights(0, head), usual.weights(0, head))
        assert difference > 1e-3 if head == 1 else difference == 0


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoders_layer_beyond_its_decoders_can_be_masked(loaded: dict[str, Family], name: str) -> None:
    encoder = loaded[name].run(spec=MaskSpec(stride=2, layers=(2,))).select("encoder")
    assert ["stride" in encoder.blocked_by(layer) for layer in range(3)] == [False, False, True]


@pytest.mark.parametrize("positions", ["cells", "documents"])
@pytest.mark.parametrize("name", ["roberta", *families.PAIRS])
def test_no_other_positions_are_taken(loaded: dict[str, Family], name: str, positions: str) -> None:
    with pytest.raises(ValueError, match="computes its own positions: leave them counted"):
        loaded[name].run(spec=MaskSpec(documents="mat", positions=positions))


@pytest.mark.parametrize("padding", ["left", "right"])
def test_packed_documents_are_alone(decoder: Family, padding: str, largest: dict[str, list[float]]) -> None:
    spec = MaskSpec(documents="mat", positions="documents")
    packed = decoder.run(padding, spec)
    numbers = packed.batch.split("mat")[0]
    assert int(numbers.max()) == 1
    for number in (0, 1):
        where = ((numbers == number) & packed.batch.keep[0]).nonzero()[:, 0]
        ids = packed.batch.ids[:1, where]
        alone = decoder.ours.run(TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), ()))
        found = largest.setdefault(f"{decoder.name}, packed", [0.0, 0.0])
        found[1] = max(found[1], largest_difference(packed.logits[0, where], alone.logits[0]))
        assert_near(packed.logits[0, where], alone.logits[0], LOGITS, f"{decoder.name}, document {number}")
    going_on = decoder.run(padding, replace(spec, positions="counted"))
    relative = decoder.name not in ("gpt2", "opt")  # rotary positions count by their distance alone
    assert (largest_difference(going_on.logits[0, where], alone.logits[0]) <= LOGITS) == relative


@pytest.mark.parametrize("name", families.PAIRS)
def test_documents_of_a_source_are_its_own(loaded: dict[str, Family], name: str) -> None:
    family = loaded[name]
    batch = family.ours.encode(["the cat mat it", "it"], targets=["a big red ball", "it"])
    trace = family.ours.run(batch, MaskSpec(documents="mat"))
    encoder = trace.select("encoder")
    first = encoder.keys.pieces[0].index("mat") + 1
    assert encoder.blocked_by(0)["documents"][:first, first:].all()
    assert not encoder.blocked_by(0)["documents"][:first, :first].any()
    assert "documents" not in trace.select("cross").blocked_by(0)


@pytest.mark.parametrize("name", families.PAIRS)
def test_documents_of_a_given_target_are_its_own(loaded: dict[str, Family], name: str) -> None:
    family = loaded[name]
    batch = family.ours.encode(["the cat", "it"], targets=["a big red ball it saw", "it"])
    blocked = family.ours.run(batch, MaskSpec(documents="ball")).blocked_by(0)["documents"]
    first = batch.pieces[0].index("ball") + 1
    assert blocked[first:, :first].all()
