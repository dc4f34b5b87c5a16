"""Tests of Hugging Face models in Unmask's attention against transformers' eager attention, family by family.

For each family a tiny random checkpoint is saved, loaded as a user's folder would be, and run on texts of different
lengths without padding, padded on the right and padded on the left. Compared is what a user sees: every weight of every
head, and the logits, at the real tokens. The largest differences are printed at the end (-rP).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from model.blocks import positions_under
from model.errors import NotSupported
from model.huggingface import recording
from model.huggingface.adapter import HuggingFaceModel
from model.huggingface.attention_hook import OwnAttention, ScriptedAttention, active_run
from model.masks import MaskSpec, Stroke
from tests.model.huggingface import families
from tests.model.huggingface.family import LOGITS, TEXTS, Family
from tests.tensors import assert_near, largest_difference


def test_rows_sum_to_one_and_blocked_cells_are_exactly_zero(family: Family) -> None:
    trace = family.run("left")
    for name in trace.attentions:
        shown = trace.select(name)
        for layer in range(shown.num_layers):
            for row in range(len(TEXTS)):
                weights = shown.weights(layer, 1, row)
                blocked = ~shown.allowed(layer, row)
                assert blocked.any() or name == "cross" or row == 0
                assert (weights[blocked] == 0).all()
                total = weights.sum(-1)[shown.queries.real(row)]
                if family.name == "gpt_oss":  # its sinks take a share of the weight
                    assert ((total > 0) & (total <= 1 + 1e-6)).all()
                    assert (total < 0.99).any()
                else:
                    assert_near(total, torch.ones_like(total), 1e-5, family.name)


def test_lifting_the_causal_mask_lets_the_future_in_and_restoring_it_shuts_it_out(decoder: Family) -> None:
    batch = decoder.batch("none")
    changed = replace(batch, ids=batch.ids.clone())
    changed.ids[0, -1] = 4 if int(batch.ids[0, -1]) != 4 else 5
    for causal in (True, False, True):
        spec = MaskSpec(causal=causal)
        trace, other = decoder.ours.run(batch, spec), decoder.ours.run(changed, spec)
        above = max(float(trace.weights(layer, 0).triu(1).sum()) for layer in range(trace.num_layers))
        moved = largest_difference(trace.logits[0, :-1], other.logits[0, :-1])
        if causal:
            assert above == 0
            assert moved <= 1e-5
        else:
            assert above > 0.1
            assert moved > 1e-3


def test_lifting_the_padding_mask_lets_padding_in(family: Family) -> None:
    spec = replace(family.ours.standard, padding=False)
    trace, standard = family.run("left", spec), family.run("left")
    row = min(range(len(TEXTS)), key=lambda row: int(trace.keys.keep[row].sum()))
    gaps = ~trace.keys.keep[row]
    assert gaps.any()
    real = trace.queries.real(row)
    assert float(trace.weights(0, 0, row)[real][:, gaps].sum()) > 1e-3
    assert float(standard.weights(0, 0, row)[real][:, gaps].sum()) == 0
    assert largest_difference(trace.logits[row, real], standard.logits[row, real]) > 1e-3


WINDOWS = {  # the native window of each layer, in positions
    "mistral": (3, 3, 3),
    "qwen2": (None, 4, 4),
    "gemma2": (3, None, 3),
    "gemma3": (3, None, 3),
    "phi3": (5, 5, 5),
    "gpt_oss": (3, None, 3),
    "mixtral": (3, 3, 3),
}


def test_a_sliding_window_is_a_mask_of_the_layers_that_have_it(decoder: Family) -> None:
    windows = WINDOWS.get(decoder.name, (None, None, None))
    trace = decoder.run()
    assert tuple(layer.context.sizes.get("window") for layer in trace.layers) == windows
    positions = torch.arange(trace.batch.ids.shape[1])
    for layer, size in enumerate(windows):
        blocked = trace.blocked_by(layer)
        assert ("window" in blocked) == (size is not None)
        if size is not None:
            assert torch.equal(blocked["window"], (positions[:, None] - positions[None, :]).abs() >= size)
            without = decoder.run(spec=MaskSpec(window=False))
            assert "window" not in without.blocked_by(layer)
            assert largest_difference(trace.logits, without.logits) > 1e-3


def test_a_causal_bert_sees_no_later_token(loaded: dict[str, Family]) -> None:
    for name in families.ENCODERS:
        family = loaded[name]
        assert family.ours.standard == MaskSpec(causal=False)
        standard, causal = family.run(), family.run(spec=MaskSpec(causal=True))
        assert float(standard.weights(0, 0).triu(1).sum()) > 0.1
        assert float(causal.weights(0, 0).triu(1).sum()) == 0
        assert largest_difference(standard.logits, causal.logits) > 1e-3


def test_an_encoder_decoders_three_attentions(loaded: dict[str, Family]) -> None:
    for name in families.PAIRS:
        trace = loaded[name].run("left")
        source, target = trace.batch.source, trace.batch
        assert trace.attentions == ("encoder", "decoder", "cross") == loaded[name].ours.attentions
        shapes = {part: tuple(trace.select(part).weights(0, 0, 1).shape) for part in trace.attentions}
        tall, wide = target.ids.shape[1], source.ids.shape[1]
        assert shapes == {"encoder": (wide, wide), "decoder": (tall, tall), "cross": (tall, wide)}
        assert tall != wide
        assert [set(trace.select(part).blocked_by(0, 1)) for part in trace.attentions] == [
            {"padding"},
            {"causal", "padding"},
            {"padding"},
        ]
        assert trace.select("cross").keys is source
        assert trace.select("cross").queries is trace.select("decoder").keys is target
        assert trace.select("cross").overview(1).shape[2:] == (tall, wide)
        with pytest.raises(ValueError, match="expected an attention out of encoder, decoder, cross, got 'self'"):
            trace.select("self")


def test_a_plain_model_has_one_attention(loaded: dict[str, Family]) -> None:
    trace = loaded["llama"].run()
    assert trace.attentions == ("self",) == loaded["llama"].ours.attentions
    assert trace.select("self") is trace
    assert trace.queries is trace.keys is trace.batch


def test_which_query_heads_share_a_key_value_head(loaded: dict[str, Family]) -> None:
    assert loaded["llama"].ours.key_value_heads == (0, 0, 1, 1)
    assert loaded["gpt2"].ours.key_value_heads == (0, 1, 2, 3)


def test_what_a_model_says_of_itself(loaded: dict[str, Family]) -> None:
    gemma = loaded["gemma2"].ours.describe()
    assert (gemma.architecture, gemma.kind) == ("Gemma2ForCausalLM", "decoder")
    assert (gemma.layers, gemma.heads, gemma.key_value_heads, gemma.context) == ({"self": 3}, 4, 2, 47)
    assert (gemma.masks, gemma.sizes) == (("causal", "padding", "window"), {"window": (3, 2)})
    bart = loaded["bart"].ours.describe()
    assert (bart.kind, bart.layers) == ("encoder-decoder", {"encoder": 3, "decoder": 2, "cross": 2})
    assert (bart.masks, bart.heads) == (("causal", "padding"), 4)
    assert bart.heads_by_part == {"encoder": (3, 3), "decoder": (4, 4), "cross": (4, 4)}
    roberta = loaded["roberta"].ours.describe()
    assert (roberta.kind, roberta.masks, roberta.sizes) == ("encoder", ("padding",), {})
    assert roberta.context == 47 - families.PAD - 1  # its positions start after its padding's


def test_a_trace_knows_what_it_holds(loaded: dict[str, Family]) -> None:
    trace = loaded["t5"].run()
    (_, tall), (_, wide) = trace.batch.ids.shape, trace.keys.ids.shape
    source = trace.batch.source
    long, heads, width, head_width = source.ids.shape[1], 4, 24, 7
    tokens = 3 * (3 * long) + 2 * (3 * tall) + 2 * (tall + 2 * long)  # of q, k and v: encoder, decoder, cross
    biases = heads * (long * long + tall * wide)  # one for all layers of the encoder, one for the decoder's
    assert trace.nbytes() == 4 * (tokens * heads * head_width + biases + tall * width)
    assert trace.select("cross").nbytes() == trace.nbytes()


def test_a_run_leaves_the_model_as_it_was(family: Family) -> None:
    network = family.ours._stacks.network
    before = network.config.to_dict(), [(name, id(module)) for name, module in network.named_modules()]
    family.run("left", MaskSpec(causal=False, padding=False))
    assert (network.config.to_dict(), [(name, id(module)) for name, module in network.named_modules()]) == before


def test_the_attention_works_within_a_run_alone(loaded: dict[str, Family]) -> None:
    with pytest.raises(RuntimeError, match="works only within a run"):
        loaded["llama"].ours._stacks.network(torch.tensor([[5, 6]]))


def test_a_layer_that_does_not_come_through_is_refused_after_the_run(loaded: dict[str, Family]) -> None:
    model: HuggingFaceModel = loaded["gpt2"].ours
    network = model._stacks.network
    try:
        network.config._attn_implementation_internal = "eager"  # as if another library changed the config
        with pytest.raises(NotSupported, match=r"\(gpt2\) cannot be shown: only 0 of its 3 .* llama"):
            model.run(model.encode(["the cat"]))
    finally:
        network.config._attn_implementation_internal = "unmask"


KINDS = {  # every token sees at least one token, as eager attention requires
    "nothing": MaskSpec(causal=False, padding=False, window=False),
    "sliding": MaskSpec(window=False, sliding=3),
    "both ways": MaskSpec(window=False, causal=False, sliding=2),
    "stride": MaskSpec(window=False, stride=2),
    "documents": MaskSpec(window=False, documents="mat", positions="documents"),
    "cells": MaskSpec(window=False, positions="cells"),
    "prefix": MaskSpec(window=False, prefix=5),
    "sinks": MaskSpec(window=False, sliding=2, sinks=2),
    "drawn": MaskSpec(window=False, drawn=(Stroke("open", 0, 0, 3, 5), Stroke("block", 1, 1, 9, 1))),
    "two heads": MaskSpec(window=False, sliding=3, sinks=1, heads=(3, 0)),
}
EMPTY_ROWS = MaskSpec(padding_queries=True, drawn=(Stroke("block", 2, 0, 2, 99),))
SCOPED = MaskSpec(causal=False, stride=2, drawn=(Stroke("block", 2, 0, 2, 99),), layers=(1,), heads=(2, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_eager_under_a_mask(decoder: Family, kind: str, largest: dict[str, list[float]]) -> None:
    """transformers adds a given mask [B,H,Q,K] of zeros and large negative numbers unchanged in every layer."""
    spec = KINDS[kind]
    if spec.heads and decoder.ours.describe().sizes:
        spec = replace(spec, heads=())  # the other heads would keep windows, which not all layers have
    trace = decoder.run("left", spec)
    batch = trace.batch
    allowed = torch.stack(
        [torch.stack([trace.allowed(0, row, head=head) for head in range(4)]) for row in range(len(TEXTS))]
    )  # [B,H,Q,K]
    real = allowed.any(-1).all(1) & batch.keep
    assert torch.equal(real, batch.keep)
    with torch.inference_mode():
        mask = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
        theirs = decoder.theirs(batch.ids, attention_mask=mask, position_ids=positions_under(spec, batch)).logits
    found = largest.setdefault(f"{decoder.name}, a mask that is given", [0.0, 0.0])
    found[1] = max(found[1], largest_difference(trace.logits[real], theirs[real]))
    assert_near(trace.logits[real], theirs[real], LOGITS, f"{decoder.name}, {kind}")


@pytest.mark.parametrize("spec", [*KINDS.values(), EMPTY_ROWS, SCOPED], ids=[*KINDS, "empty rows", "scoped"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "bert", "t5", "bart"])
def test_a_run_attends_as_its_trace_shows_it(
    loaded: dict[str, Family], name: str, spec: MaskSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = loaded[name]
    if not family.ours.takes_positions:
        spec = replace(spec, positions="counted")
    outputs: list[Tensor] = []

    def recorded(*given: Tensor, **options: object) -> Tensor:
        outputs.append(attend(*given, **options))
        return outputs[-1]

    attend = recording.attend
    batch = family.batch("left")
    monkeypatch.setattr(recording, "attend", recorded)
    trace = family.ours.run(batch, spec)
    assert len(outputs) == len(family.ours._findings.sites)
    layers: Counter[str] = Counter()
    for site, output in zip(family.ours._findings.sites, outputs, strict=True):
        shown, layer = trace.select(site.part), layers[site.part]
        layers[site.part] += 1
        assert not output.isnan().any()
        for row, head in product(range(len(TEXTS)), range(output.shape[1])):
            stages, allowed = shown.stages(layer, head, row), shown.allowed(layer, row, head=head)
            assert_near(output[row, head], stages.output, 1e-5, f"{name}: {site.part} {layer}.{head}, row {row}")
            assert torch.equal(stages.masked.isfinite(), allowed)
            assert (stages.weights[~allowed] == 0).all()
            if name != "gpt_oss":
                assert_near(stages.weights.sum(-1), allowed.any(-1).float(), 1e-5, "sums of rows, 0 for an empty one")


def test_code_of_its_own_may_name_the_scores_it_gives_to_a_function() -> None:
    """relu is no step of attention, so its scores are not followed; a softmax whose input is named is followed."""
    q, k, v = torch.randn(2, 7, 3, 11), torch.randn(2, 7, 5, 11), torch.randn(2, 7, 5, 13)
    expected, run = torch.relu(input=q @ k.mT), ScriptedAttention([3])
    with active_run(run), OwnAttention(2):
        scores = q @ k.mT
        assert_near(torch.relu(input=scores), expected, 0)
        output = torch.softmax(input=scores, dim=-1) @ v
    assert run.call is not None
    assert (run.call.q is q, run.call.v is v, output.shape) == (True, True, (2, 7, 3, 13))


ALLOWED = torch.arange(15).reshape(3, 5) % 4 > 0
BIAS = torch.zeros(3, 5).masked_fill(~ALLOWED, -torch.inf)
BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "masked_fill": lambda scores: scores.masked_fill(value=-torch.inf, mask=~ALLOWED),
    "torch.masked_fill": lambda scores: torch.masked_fill(value=-torch.inf, mask=~ALLOWED, input=scores),
    "where": lambda scores: torch.where(condition=ALLOWED, input=scores, other=-torch.inf),
    "where not": lambda scores: torch.where(condition=~ALLOWED, input=torch.tensor(-torch.inf), other=scores),
    "add": lambda scores: torch.add(input=scores, other=BIAS),
    "sub": lambda scores: scores.sub(other=-BIAS),
}


@pytest.mark.parametrize("masked", BY_NAME.values(), ids=[*BY_NAME])
def test_code_of_its_own_may_name_the_mask(masked: Callable[[Tensor], Tensor]) -> None:
    q, k, v = torch.randn(2, 7, 3, 11), torch.randn(2, 7, 5, 11), torch.randn(2, 7, 5, 13)
    run = ScriptedAttention([3])
    with active_run(run), OwnAttention(2):
        masked(q @ k.mT).softmax(-1) @ v
    assert run.call is not None
    (added,) = run.call.added
    assert torch.equal(added if added.dtype == torch.bool else added == 0, ALLOWED)
