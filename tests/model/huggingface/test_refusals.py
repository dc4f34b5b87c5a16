"""Tests that models which would be shown wrong are refused, or described, before their weights are read."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from model import catalog
from model.circuits.weights import weights_of
from model.errors import CheckpointError, NotSupported
from model.huggingface import adapter, attention_hook, verify
from model.huggingface.adapter import HuggingFaceModel
from model.inference.calls import check_predicts
from model.masks import MaskSpec
from serving.settings import Settings
from tests.model.huggingface import families

WEIGHTS = "model.safetensors"


def load(folder: Path) -> HuggingFaceModel:
    return catalog.load(str(folder), settings=Settings())  # type: ignore[return-value]


def add_tensors(folder: Path, **tensors: torch.Tensor) -> None:
    save_file(load_file(folder / WEIGHTS) | tensors, folder / WEIGHTS, metadata={"format": "pt"})


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("name", ["indices_of_pages", "block_table"])
def test_an_argument_that_is_not_understood_is_refused_by_its_name(name: str) -> None:
    q = torch.ones(1, 2, 3, 4)
    with pytest.raises(NotSupported, match=f"its attention depends on {name}, which Unmask does not support"):
        attention_hook._attention(torch.nn.Identity(), q, q, q, None, **{name: torch.ones(1)})


@pytest.mark.parametrize("name", ["model.layers.3.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight_scale"])
def test_weights_without_a_place_are_refused_by_name(folder: Path, name: str) -> None:
    add_tensors(folder, **{name: torch.ones(3)})
    with pytest.raises(CheckpointError, match=f"contains weights that do not fit the network .* \\({name}"):
        load(folder)


def test_weights_that_nothing_shown_depends_on_are_passed_over(folder: Path) -> None:
    add_tensors(folder, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(5)})
    assert load(folder).predicts


def test_a_body_without_a_head_claims_no_predictions(tmp_path: Path) -> None:
    """Its embedding would serve as the head, as in a tied model, and no weight would be missing."""
    hf.LlamaModel(hf.LlamaConfig(**families.WIDE, tie_word_embeddings=True)).save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    model = load(tmp_path)
    assert not model.predicts
    assert model.describe().architecture == "LlamaModel"
    for refuses in (weights_of, check_predicts):  # the message states what this decoder lacks
        with pytest.raises(ValueError, match="language-model head"):
            refuses(model)


@pytest.mark.parametrize("kind", ["llama", "bert", "gpt2"])
def test_a_classifier_claims_no_predictions(tmp_path: Path, kind: str) -> None:
    config = families.ALL[kind]
    hf.AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    model = load(tmp_path)
    assert not model.predicts
    assert model.run(model.encode(["the cat"])).weights(0, 0).shape[0] >= 2


def test_an_encoder_decoder_made_a_classifier_keeps_its_encoder_and_reads_its_text_twice(tmp_path: Path) -> None:
    hf.BartForSequenceClassification(families.PAIRS["bart"]).save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path, families.TEMPLATES["bart"])
    model = load(tmp_path)
    batch = model.encode(["the cat sat"])
    assert (model.kind, model.predicts) == ("encoder-decoder", False)
    assert batch.source is not None
    assert [piece for piece in batch.pieces[0] if piece in families.WORDS] == ["the", "cat", "sat"]
    assert model.run(batch).attentions == ("encoder", "decoder", "cross")


def test_a_speech_model_never_loses_its_encoder(tmp_path: Path) -> None:
    config = hf.WhisperConfig(
        vocab_size=61, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=20, decoder_ffn_dim=20, max_source_positions=20,
        max_target_positions=20, num_mel_bins=8, **families.IDS,
    )  # fmt: skip
    hf.WhisperForConditionalGeneration(config).save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    with pytest.raises(NotSupported, match="it is a speech model: it reads sound, not text"):
        load(tmp_path)


def test_whatever_a_network_raises_on_a_text_becomes_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(folder)

    def broken(*_: object, **__: object) -> None:
        raise AttributeError("no attribute 'surprise'")

    monkeypatch.setattr(model._stacks.stack, "forward", broken)
    with pytest.raises(NotSupported, match=r"failed on this text \(AttributeError: no attribute 'surprise'\)"):
        model.run(model.encode(["the cat"]), MaskSpec())


@pytest.mark.parametrize("model_type", verify.NOT_SHOWN)
def test_an_architecture_without_attention_is_refused_by_its_config_alone(folder: Path, model_type: str) -> None:
    (folder / WEIGHTS).unlink()
    edit(folder / "config.json", model_type=model_type)
    for look in (load, lambda folder: catalog.inspect(str(folder), Settings())):
        with pytest.raises(NotSupported) as caught:
            look(folder)
        assert verify.NOT_SHOWN[model_type] in str(caught.value)


def test_the_documentation_has_every_reason() -> None:
    documented = (Path(__file__).parents[3] / "docs/models.md").read_text(encoding="utf-8")
    for types, why in verify.NOT_SHOWN_TYPES.items():
        assert f"| {', '.join(types.split())} | {why} |" in documented


SMALL = families.PLAIN | {"num_hidden_layers": 2}
BY_PROOF = {  # each is refused even without the list, once it is run
    "mamba": (hf.MambaConfig(vocab_size=61, hidden_size=16, state_size=4, num_hidden_layers=2), "a state space"),
    "fnet": (hf.FNetConfig(**SMALL), "it has no attention"),
    "yoso": (hf.YosoConfig(**SMALL), "is not a softmax over all tokens"),
}


@pytest.mark.parametrize("model_type", BY_PROOF)
def test_the_proof_refuses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str) -> None:
    monkeypatch.setattr(verify, "NOT_SHOWN", {})
    config, why = BY_PROOF[model_type]
    auto = hf.AutoModelForCausalLM if model_type == "mamba" else hf.AutoModelForMaskedLM
    auto.from_config(config).save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    with pytest.raises(NotSupported, match=why):
        load(tmp_path)


@pytest.mark.parametrize("size", [{}, {"conv_kernel_size": 3}])
def test_a_convolution_beside_the_attention_is_refused(tmp_path: Path, size: dict[str, int]) -> None:
    """It reads padding: transformers' logits of a padded text differ from those of the text alone."""
    network = hf.AutoModelForMaskedLM.from_config(hf.NystromformerConfig(**SMALL, **size)).eval()
    network.save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    with pytest.raises(NotSupported, match="a convolution over neighbouring tokens"):
        load(tmp_path)
    with pytest.raises(NotSupported, match="a convolution over neighbouring tokens"):
        adapter.from_network(network, families.word_tokenizer())


@pytest.mark.parametrize("heads", [[4, 8], [8, 4]])
def test_layers_with_different_numbers_of_heads_are_refused(tmp_path: Path, heads: list[int]) -> None:
    """Every view has one number of heads for all layers."""
    config = hf.LagunaConfig(
        **SMALL | {"hidden_size": 32}, num_attention_heads_per_layer=heads, num_key_value_heads=2, head_dim=8,
        layer_types=["full_attention"] * 2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )  # fmt: skip
    families.save("laguna", tmp_path, config)
    with pytest.raises(NotSupported, match=r"its layers have different numbers of heads \(4, 8\)"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("model_type", "why"),
    [
        ("vit", "an image model: it reads images"),
        ("wav2vec2", "a speech model: it reads sound"),
        ("clip", r"\(clip\) cannot be shown: transformers has no language model of this kind"),  # half of it reads text
        ("siglip", "no language model"),
    ],
)
def test_a_model_of_another_sense_is_named(folder: Path, model_type: str, why: str) -> None:
    edit(folder / "config.json", model_type=model_type)
    with pytest.raises(NotSupported, match=why):
        load(folder)


@pytest.mark.parametrize(
    ("method", "text"),
    [("gptq", "GPTQ"), ("awq", "AWQ"), ("fp8", "8-bit floats")],
)
def test_quantised_weights_are_named(folder: Path, method: str, text: str) -> None:
    edit(folder / "config.json", quantization_config={"quant_method": method})
    with pytest.raises(CheckpointError, match=rf"stored quantized \({text}"):
        load(folder)


def test_mlx_weights_are_named(folder: Path) -> None:
    edit(folder / "config.json", quantization={"group_size": 64, "bits": 4})
    with pytest.raises(CheckpointError, match="MLX's quantization"):
        load(folder)


def test_an_adapter_is_named_with_its_base(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/base"}')
    (folder / WEIGHTS).rename(folder / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"is an adapter .* for someone/base, not a model by itself"):
        load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"is an adapter .* for someone/base, not a model by itself"):
        load(folder)


def test_gguf_and_weights_of_another_name(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match=r"has its weights as weights\.safetensors"):
        load(folder)
    (folder / "weights.safetensors").rename(folder / "llama-q4.gguf")
    with pytest.raises(CheckpointError, match=r"llama-q4\.gguf is not a complete GGUF file"):
        load(folder)


def test_the_transformer_inside_a_sentence_transformers_folder(tmp_path: Path) -> None:
    families.save("bert", tmp_path / "0_Transformer")
    modules = [{"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert load(tmp_path).kind == "encoder"
    modules[0]["path"] = "../elsewhere"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        load(tmp_path)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "t5"])
def test_weights_in_memory_that_are_no_numbers_are_named(family: str) -> None:
    network = families.random_network(family)
    name, weight = list(network.named_parameters())[-1]
    with torch.no_grad():
        weight.fill_(torch.nan)
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=families.word_tokenizer("<s> $A"))
    with pytest.raises(CheckpointError, match=rf"numbers that are not finite \({re.escape(name)}\)"):
        adapter.from_network(network, tokenizer)


@pytest.mark.parametrize(("precision", "advice"), [("float32", ""), ("bfloat16", ". Choose the precision float32")])
def test_logits_of_its_own_that_are_no_numbers_are_said_to_be(tmp_path: Path, precision: str, advice: str) -> None:
    network = families.random_network("llama")
    with torch.no_grad():
        for weight in network.parameters():
            weight *= 1e18
    network.save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    message = f"in {precision} its own logits, as transformers computes them, are not finite numbers{advice}"
    with pytest.raises(NotSupported, match=message):
        catalog.load(str(tmp_path), settings=Settings(precision=precision))
    with torch.no_grad():
        for weight in network.parameters():
            weight *= 1e-18
    network.save_pretrained(tmp_path)
    assert load(tmp_path).predicts
    edit(tmp_path / "config.json", rms_norm_eps=float("nan"))
    with pytest.raises(NotSupported, match=message):
        catalog.load(str(tmp_path), settings=Settings(precision=precision))


def test_a_context_without_room_for_a_text_is_said_when_it_is_loaded(folder: Path) -> None:
    edit(folder / "config.json", max_position_embeddings=1)
    with pytest.raises(CheckpointError, match=r"No text fits into the model's context of 1: .* every text takes 1"):
        load(folder)
    edit(folder / "config.json", max_position_embeddings=2)
    model = load(folder)
    assert model.encode(["the cat"]).pieces == (("<s>", "the"),)


def test_a_difference_that_rounding_may_explain_is_said_to_be_of_the_precision() -> None:
    theirs, keep = torch.zeros(1, 3, 5), torch.ones(1, 3, dtype=torch.bool)
    with pytest.raises(NotSupported, match=r"non-standard way \(logits differ by 2 from its own\)"):
        verify.check_logits(theirs + 2, theirs, keep)
    with pytest.raises(NotSupported, match=r"in bfloat16 the logits differ by 2 .* Choose the precision float32"):
        verify.check_logits(theirs + 2, theirs.bfloat16(), keep)
