"""Tests of all families: plain ones, own attention code, hybrids, language parts of larger models, wrappers.

Each tiny random checkpoint is saved, loaded as a user's folder, and compared with transformers' own eager attention:
logits to 1e-3 of the largest, weights to 1e-5, on texts longer than its windows, chunks and blocks, one without padding
and one padded on either side; then its causal mask is lifted and restored.
"""

import inspect
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from model.blocks import positions_of
from model.circuits.patching import Patch, PatchMetric, PatchPair
from model.errors import NotSupported
from model.heads.ablation import AblatedHeads, outcome
from model.heads.reach import reach_of
from model.huggingface import adapter, internals
from model.huggingface.adapter import HuggingFaceModel
from model.masks import MaskSpec
from model.text import TokenBatch
from serving.settings import Settings
from tests.model.huggingface import families
from tests.model.huggingface.every_type import network_of
from tests.model.huggingface.more_families import ALL, MULTIMODAL, PAIRS
from tests.tensors import largest_difference

pytestmark = pytest.mark.slow  # loads fifty models

TEXTS = ["the cat sat on a mat and then it saw one", "red ball near the old mat"]
TARGETS = ["a big cat and a ball it saw", "one old mat"]
ENCODERS = {"mpnet", "deberta", "deberta-v2", "layoutlm", "nystromformer", "squeezebert"}
EVERY = ALL | families.DECODERS | families.ENCODERS | families.PAIRS
READS_PADDING = {"recurrent_gemma"}  # its recurrence reads padding, in transformers too
LAYERS = {  # the numbers of the layers with attention, and the kind of the others
    "qwen3_next": ((2,), "linear attention"),
    "qwen3_5": ((2,), "linear attention"),
    "qwen3_5_moe": ((2,), "linear attention"),
    "lfm2": ((1,), "convolution"),
    "granitemoehybrid": ((1,), "state space"),
    "jamba": ((1,), "state space"),
    "bamba": ((1,), "state space"),
    "nemotron_h": ((1,), "state space"),
    "zamba": ((2, 4), "state space"),
    "recurrent_gemma": ((2,), "recurrence"),
    "olmo_hybrid": ((2,), "linear attention"),
    "minimax": ((1,), "linear attention"),
    "falcon_h1": ((0, 1, 2), "state space besides attention"),
}


def network_class(name: str) -> type:
    if name in PAIRS | families.PAIRS or name == "voxtral":
        return hf.AutoModelForSeq2SeqLM
    if name in MULTIMODAL.keys() - families.DECODERS and name != "llama4":
        return hf.AutoModelForImageTextToText
    return hf.AutoModelForMaskedLM if name in ENCODERS | families.ENCODERS.keys() else hf.AutoModelForCausalLM


def saved(name: str, folder: Path) -> Path:
    """Save weights large enough for non-uniform attention; norms and the inputs of state spaces stay as they are."""
    torch.manual_seed(5)
    network = network_class(name).from_config(EVERY[name], attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight_name, parameter in network.named_parameters():
            if parameter.ndim == 2 and "mamba" not in weight_name and "rg_lru" not in weight_name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    network.save_pretrained(folder)
    families.save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module", params=[name for name in EVERY if name not in families.ALIKE])
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, HuggingFaceModel, PreTrainedModel]:
    """Return a family's name, its model loaded by Unmask, and its network loaded by transformers."""
    name = request.param
    folder = saved(name, tmp_path_factory.mktemp(name))
    theirs = network_class(name).from_pretrained(folder, attn_implementation="eager").eval()
    internals.add_alibi_once(theirs)  # see test_alibi_is_added_once
    return name, adapter.load(str(folder), settings=Settings()), theirs


@torch.inference_mode()
def eager(name: str, network: PreTrainedModel, batch: TokenBatch, row: int) -> tuple[Tensor, dict[str, tuple]]:
    """Return transformers' logits [T,V] of a row alone, and by name the weights [H,Q,K] of each layer."""
    here = batch.real(row)
    ids = batch.ids[row : row + 1, here]
    if batch.source is None and name in READS_PADDING:
        given = {"position_ids": positions_of(batch.keep), "use_cache": False}
        out = network(batch.ids, attention_mask=batch.keep.long(), **given)
        return out.logits[row, here], {}
    if batch.source is None:
        given = {"use_cache": False} if "use_cache" in inspect.signature(network.forward).parameters else {}
        out = network(ids, attention_mask=torch.ones_like(ids), output_attentions=True, **given)
        weights = {"self": out.attentions}
        if name == "squeezebert":  # it returns scores before the softmax, not weights
            weights = {"self": tuple(scores.softmax(-1) for scores in out.attentions)}
    else:
        source = batch.source.ids[row : row + 1, batch.source.real(row)]
        out = network(source, decoder_input_ids=ids, output_attentions=True)
        weights = {"encoder": out.encoder_attentions, "decoder": out.decoder_attentions, "cross": out.cross_attentions}
    found = {part: [one[0] for one in some or () if one is not None] for part, some in weights.items()}
    return out.logits[0], {part: tuple(some) for part, some in found.items() if some}


def batch_of(model: HuggingFaceModel, padding: str) -> TokenBatch:
    return model.encode(TEXTS, padding, TARGETS if model.kind == "encoder-decoder" else None)


@pytest.mark.parametrize("padding", ["right", "left"])  # the first row has no padding
def test_each_text_is_as_it_is_alone(family: tuple[str, HuggingFaceModel, PreTrainedModel], padding: str) -> None:
    name, ours, theirs = family
    trace, found = ours.run(batch_of(ours, padding)), ours.describe()
    compared = 0
    for row in range(len(trace.batch.ids)):
        logits, attentions = eager(name, theirs, trace.batch, row)
        off = largest_difference(trace.logits[row, trace.batch.real(row)], logits)
        assert off <= 1e-3 * float(logits.abs().max()), f"{name}, {padding}, row {row}: logits off by {off:.2g}"
        for part, expected in attentions.items():
            shown = trace.select(part)
            if len(expected) == len(found.layer_kinds):  # MiniMax also returns those of linear attention
                expected = tuple(expected[found.layer_number(part, layer)] for layer in range(found.layers[part]))
            assert len(expected) == shown.num_layers
            for layer, weights in enumerate(expected):
                here = torch.stack([shown.weights(layer, head, row) for head in range(shown.num_heads)])
                here = here[:, shown.queries.real(row), shown.keys.real(row)]
                off = largest_difference(here, weights)
                assert off <= 1e-5, f"{name}, {padding}, row {row}: {part}, layer {layer} off by {off:.2g}"
                compared += 1
    assert compared or name in READS_PADDING


def test_one_token_has_nothing_to_predict(family: tuple[str, HuggingFaceModel, PreTrainedModel]) -> None:
    name, ours, theirs = family
    batch = ours.encode(["cat"], "left", ["it"] if ours.kind == "encoder-decoder" else None)
    trace = ours.run(batch)
    logits, _ = eager(name, theirs, batch, 0)
    off = largest_difference(trace.logits[0], logits)
    assert off <= 1e-3 * float(logits.abs().max()), f"{name}: logits off by {off:.2g}"
    losses = trace.losses()
    assert losses.isnan().tolist() == [True] + [False] * (batch.ids.shape[1] - 1)
    assert len(losses) == 1 or ours.kind == "encoder-decoder"


def test_a_text_longer_than_the_context_is_cut_to_it(family: tuple[str, HuggingFaceModel, PreTrainedModel]) -> None:
    name, ours, _ = family
    text = "the cat sat " * 700
    batch = ours.encode([text], "left", [text] if ours.kind == "encoder-decoder" else None)
    assert batch.cut[0]
    assert ours.run(batch).logits.isfinite().all(), name


def test_the_causal_mask_is_lifted_and_put_back(family: tuple[str, HuggingFaceModel, PreTrainedModel]) -> None:
    name, ours, _ = family
    batch = batch_of(ours, "left")
    part = "decoder" if ours.kind == "encoder-decoder" else "self"
    for causal in (True, False, True):
        trace = ours.run(batch, MaskSpec(causal=causal, window=False, chunk=False)).select(part)
        for layer in range(trace.num_layers):
            later = float(trace.weights(layer, 0, 1).triu(1).sum())
            assert (later == 0) == causal, f"{name}, layer {layer}: {later:.2g} on later tokens, causal {causal}"
            assert float(trace.weights(layer, 0, 1)[:, ~batch.keep[1]].sum()) == 0


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_not_attention_is_named_and_never_drawn(name: str, tmp_path: Path) -> None:
    model = adapter.load(str(saved(name, tmp_path)), settings=Settings())
    numbers, kind = LAYERS[name]
    found = model.describe()
    assert found.layer_numbers == ({"self": numbers} if len(numbers) < len(found.layer_kinds) else {})
    with_attention = ("attention", "state space besides attention")  # such as Zamba's
    assert [layer for layer, what in enumerate(found.layer_kinds) if what in with_attention] == list(numbers)
    assert found.layer_kinds[0] == kind
    assert found.layers == {"self": len(numbers)}
    assert model.run(model.encode(TEXTS[:1])).num_layers == len(numbers)
    assert [found.layer_number("self", layer) for layer in range(len(numbers))] == list(numbers)


def test_a_feed_forward_layer_of_its_own_is_no_state_space(tmp_path: Path) -> None:
    model = adapter.load(str(saved("nemotron_h", tmp_path)), settings=Settings())
    assert model.describe().layer_kinds == ("state space", "attention", "feed-forward", "state space")


@torch.inference_mode()
def test_values_in_two_parts_are_of_one_attention(tmp_path: Path) -> None:
    model = adapter.load(str(saved("diffllama", tmp_path)), settings=Settings())
    batch = model.encode(TEXTS[:1])
    trace = model.run(batch)
    assert (model.describe().layers, model.describe().layer_numbers) == ({"self": 3}, {})
    assert trace.layers[1].v.shape[-1] == 2 * trace.layers[1].q.shape[-1]
    window, ids = MaskSpec(sliding=2), batch.ids.repeat(2, 1)
    ids[1, :6] += 1
    both = model.run(replace(batch.rows([0, 0]), ids=ids), window).logits
    reached = reach_of(trace, 0, window, 0, 0).first[:, :6].any(1)
    assert reached.tolist() == ((both[0] - both[1]).abs().amax(-1) > 1e-5).tolist()
    assert reached.tolist() == [True] * 9 + [False] * 2
    pair, metric = PatchPair(model, trace, 0, trace, 0), PatchMetric(9, 5)
    assert abs(pair.effects(metric, [[Patch("head", 1, head)] for head in range(4)])).max() == 0
    off = outcome(model, batch, model.standard, 0, 9, AblatedHeads(tuple((1, head) for head in range(4))), 5)
    theirs = network_class("diffllama").from_pretrained(tmp_path, attn_implementation="eager").eval()
    theirs.get_submodule("model.layers.1.self_attn.o_proj").weight.zero_()
    expected = theirs(batch.ids).logits[0, 9].log_softmax(-1)[5]
    assert off.log_probability == pytest.approx(float(expected), abs=1e-5)


def test_attentions_one_after_the_other_in_a_layer_are_counted_one_by_one(tmp_path: Path) -> None:
    families.save_tokenizer(tmp_path)
    network = network_of("causal", "longcat_flash")
    model = adapter.from_network(network, Tokenizer.from_file(str(tmp_path / "tokenizer.json")))
    found, batch = model.describe(), model.encode(TEXTS[:1])
    assert found.layers == {"self": network.config.num_hidden_layers}
    assert [found.layer_number("self", layer) for layer in range(4)] == [0, 1, 2, 3]
    with pytest.raises(NotSupported, match="several attentions each"):
        model.residuals(batch, model.standard)


def test_chunks_are_a_mask_with_a_name_of_its_own(tmp_path: Path) -> None:
    model = adapter.load(str(saved("llama4", tmp_path)), settings=Settings())
    assert model.describe().masks == ("causal", "padding", "chunk")
    batch = model.encode(TEXTS, "left")
    trace = model.run(batch)
    assert ["chunk" in trace.blocked_by(layer, 1) for layer in range(3)] == [True, False, True]
    positions = batch.keep[1].cumsum(0) - 1
    real = batch.real(1)
    chunks = (positions // 4)[real]
    assert torch.equal(trace.blocked_by(0, 1)["chunk"][real, real], chunks[:, None] != chunks[None, :])
    whole = model.run(batch, MaskSpec(chunk=False))
    assert "chunk" not in whole.blocked_by(0, 1)
    assert largest_difference(whole.logits[batch.keep], trace.logits[batch.keep]) > 1e-3


@pytest.mark.parametrize("name", ["bloom", "falcon", "mpt", "deberta-v2"])
def test_what_a_model_adds_to_its_scores_is_a_term_of_its_own(name: str, tmp_path: Path) -> None:
    model = adapter.load(str(saved(name, tmp_path)), settings=Settings())
    trace = model.run(model.encode(TEXTS, "left"))
    stages, record = trace.stages(1, 1, 0), trace.layers[1]
    added = stages.scaled - stages.raw * record.scale
    assert float(added.abs().max()) > 1e-2
    whole = record.terms.bias.expand(len(TEXTS), record.q.shape[1], *added.shape)
    assert largest_difference(added, whole[0, 1]) <= 1e-4


@torch.inference_mode()
def test_alibi_is_added_once(tmp_path: Path) -> None:
    """This is what SDPA does, unlike transformers' eager attention of this model."""
    folder = saved("falcon", tmp_path)
    ours = adapter.load(str(folder), settings=Settings())
    theirs = hf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()
    trace = ours.run(batch_of(ours, "left"))
    keep = trace.batch.keep
    expected = theirs(trace.batch.ids, attention_mask=keep.long()).logits
    assert largest_difference(trace.logits[keep], expected[keep]) <= 1e-5
    in_memory = adapter.from_network(theirs, Tokenizer.from_file(str(folder / "tokenizer.json"))).run(trace.batch)
    assert largest_difference(trace.logits[keep], in_memory.logits[keep]) <= 1e-5
    for head, slope in enumerate((2**-4, 2**-8, 2**-2)):  # of 3 heads, the third has a slope of those for 4
        stages, record = trace.stages(0, head, 0), trace.layers[0]
        added = (stages.scaled - stages.raw * record.scale)[5]
        assert largest_difference(added.diff(), torch.full((len(added) - 1,), slope / 8**0.5)) <= 1e-4


def test_a_model_of_own_code_takes_a_readers_masks_too(tmp_path: Path) -> None:
    model = adapter.load(str(saved("gptj", tmp_path)), settings=Settings())
    batch = model.encode(TEXTS, "left")
    trace = model.run(batch, MaskSpec(sliding=2, sinks=1, layers=(1,), heads=(0, 2)))
    assert ["sliding" in trace.blocked_by(1, 0, head=head) for head in range(4)] == [True, False, True, False]
    usual = model.run(batch)
    assert largest_difference(trace.logits[batch.keep], usual.logits[batch.keep]) > 1e-3
    packed = model.run(batch, replace(MaskSpec(), documents="mat", positions="documents"))
    assert "documents" in packed.blocked_by(0, 0)


def test_a_query_that_chooses_looks_at_so_many_tokens(tmp_path: Path) -> None:
    model = adapter.load(str(saved("deepseek_v32", tmp_path)), settings=Settings())
    batch = model.encode(TEXTS[:1])
    tokens = batch.ids.shape[1]
    assert tokens > 6
    usual, lifted = model.run(batch).weights(1, 2), model.run(batch, MaskSpec(causal=False)).weights(1, 2)
    later = [tokens - 1 - query for query in range(tokens)]
    looked_at = [min(query + 1, 4) for query in range(tokens)]
    assert (usual > 0).sum(-1).tolist() == looked_at
    assert (lifted > 0).sum(-1).tolist() == [now + more for now, more in zip(looked_at, later, strict=True)]


@torch.inference_mode()
def test_a_recurrence_after_an_attention_reads_padding_on_the_left_alone(tmp_path: Path) -> None:
    config = ALL["recurrent_gemma"].to_dict() | {"num_hidden_layers": 6}
    folder = families.save("recurrent_gemma", tmp_path, hf.RecurrentGemmaConfig(**config))
    ours = adapter.load(str(folder), settings=Settings())
    theirs = hf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    assert ours.describe().layer_numbers["self"] == (2, 5)
    batch = batch_of(ours, "right")
    expected = theirs(batch.ids, attention_mask=batch.keep.long(), use_cache=False).logits
    assert largest_difference(ours.run(batch).logits[batch.keep], expected[batch.keep]) <= 1e-4
