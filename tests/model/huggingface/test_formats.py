"""Tests of weights that are read though not stored as one model.safetensors: under variants' names, with an adapter."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model import catalog
from model.errors import CheckpointError, TooLarge
from model.huggingface import checkpoint_files, formats, own_network
from serving.settings import Settings
from tests.model.huggingface import families
from tests.tensors import largest_difference

TEXTS = ["the cat sat on a mat and then it saw"]
QUERY, DOWN = "model.layers.1.self_attn.q_proj", "model.layers.2.mlp.down_proj"
RANK = 3


def logits(folder: Path) -> torch.Tensor:
    model = catalog.load(str(folder), settings=Settings())
    return model.run(model.encode(TEXTS)).logits


def add_adapter(folder: Path, targets: dict[str, tuple[int, int]], **config: Any) -> dict[str, torch.Tensor]:
    """Save an adapter, and return B·A for each weight. targets: the shape [out,in] of each weight."""
    generator = torch.Generator().manual_seed(3)
    tensors, products = {}, {}
    for target, (out, into) in targets.items():
        a, b = torch.randn(RANK, into, generator=generator), torch.randn(out, RANK, generator=generator)
        tensors |= {f"base_model.model.{target}.lora_{side}.weight": one for side, one in (("A", a), ("B", b))}
        products[target] = b @ a
    save_file(tensors, folder / "adapter_model.safetensors")
    usual = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2, "base_model_name_or_path": "someone/base"}
    (folder / "adapter_config.json").write_text(json.dumps(usual | config))
    return products


def merged_by_hand(folder: Path, products: dict[str, torch.Tensor], scale: float) -> torch.Tensor:
    """Return the logits of the folder's network with the products added to its weights and its adapter removed."""
    tensors = load_file(folder / "model.safetensors")
    for target, product in products.items():
        change = product if tensors[f"{target}.weight"].shape == product.shape else product.T
        tensors[f"{target}.weight"] = tensors[f"{target}.weight"] + scale * change
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / file).unlink()
    return logits(folder)


@pytest.mark.parametrize("variant", ["fp16", "bf16"])
def test_weights_whose_name_says_their_precision_are_read(folder: Path, variant: str) -> None:
    expected = logits(folder)
    (folder / "model.safetensors").rename(folder / f"model.{variant}.safetensors")
    assert torch.equal(logits(folder), expected)


@pytest.mark.parametrize(("rslora", "scale"), [(False, 2 / 3), (True, 2 / 3**0.5)])
def test_an_adapter_beside_its_base_is_merged(folder: Path, rslora: bool, scale: float) -> None:
    base = logits(folder)
    assert catalog.load(str(folder), settings=Settings()).describe().architecture == "LlamaForCausalLM"
    products = add_adapter(folder, {QUERY: (40, 24), DOWN: (24, 37)}, use_rslora=rslora)
    with_it = logits(folder)
    name = catalog.load(str(folder), settings=Settings()).describe().architecture
    assert name == "LlamaForCausalLM, its adapter merged"
    network = own_network.load("llama", folder, Settings())
    tensor = load_file(folder / "model.safetensors")[f"{DOWN}.weight"]
    assert largest_difference(network.get_submodule(DOWN).weight, tensor + scale * products[DOWN]) <= 1e-5
    expected = merged_by_hand(folder, products, scale)
    assert largest_difference(with_it, expected) <= 1e-4
    assert largest_difference(with_it, base) > 1e-2


@pytest.mark.parametrize(("kind", "weight"), [("llama", QUERY), ("gpt2", "transformer.h.1.attn.c_attn")])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_weights_that_are_integers_are_refused_by_their_type(
    tmp_path: Path, kind: str, weight: str, dtype: torch.dtype
) -> None:
    folder = families.save(kind, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{weight}.weight"] = (100 * tensors[f"{weight}.weight"]).to(dtype)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stored = {torch.int8: "I8", torch.uint8: "U8", torch.int32: "I32"}[dtype]
    with pytest.raises(CheckpointError, match=rf": {weight}\.weight is stored as integers \({stored}\), and config"):
        logits(folder)


def test_integers_of_a_part_that_says_how_it_is_quantised_are_refused_for_that(tmp_path: Path) -> None:
    save_file({"model.q_proj.weight": torch.ones(2, 2, dtype=torch.int8)}, tmp_path / "model.safetensors")
    config = {"model_type": "llava", "text_config": {"quantization_config": {"quant_method": "mxfp4"}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert checkpoint_files.stored_type("a model", tmp_path)  # no message about integers
    with pytest.raises(CheckpointError, match="stored quantized"):
        formats.check_config("a model", config)


def test_a_truth_value_is_no_integer(tmp_path: Path) -> None:
    save_file({"some.weight": torch.ones(2, 2, dtype=torch.bool)}, tmp_path / "model.safetensors")
    formats.check_no_integers("a model", [tmp_path / "model.safetensors"])


def test_masks_and_positions_may_be_integers(tmp_path: Path) -> None:
    folder = families.save("gpt2", tmp_path)
    expected = logits(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.h.1.attn.bias"] = torch.ones(1, 1, 47, 47, dtype=torch.uint8).tril()
    tensors["transformer.h.2.attn.bias"] = torch.ones(1, 1, 47, 47, dtype=torch.bool).tril()
    tensors["transformer.position_ids"] = torch.arange(47)[None]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert torch.equal(logits(folder), expected)


def test_weights_that_the_files_lack_count_for_the_limit_too(folder: Path) -> None:
    """transformers would create them, in the size that the configuration states."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 10**9}))
    with pytest.raises(TooLarge, match="of memory for its weights, and the limit is"):
        own_network.load("llama", folder, Settings())


def test_an_adapter_of_a_gpt2_whose_weights_are_stored_the_other_way_round(tmp_path: Path) -> None:
    folder = families.save("gpt2", tmp_path)
    base = logits(folder)
    products = add_adapter(folder, {"transformer.h.1.attn.c_attn": (72, 24)}, fan_in_fan_out=True)
    with_it = logits(folder)
    assert largest_difference(with_it, merged_by_hand(folder, products, 2 / 3)) <= 1e-3
    assert largest_difference(with_it, base) > 1e-2


def test_peft_puts_no_adapter_in_a_second_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_adapter(folder, {QUERY: (40, 24)})
    expected = logits(folder)
    for module in ("models.auto.auto_factory", "integrations.peft"):
        monkeypatch.setattr(f"transformers.{module}.is_peft_available", lambda: True)
    assert torch.equal(logits(folder), expected)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ({"bias": "all"}, "bias"),
        ({"alora_invocation_tokens": [5, 6]}, "alora_invocation_tokens"),
        ({"init_lora_weights": "pissa_niter_16"}, "init_lora_weights"),
        ({"init_lora_weights": "olora"}, "init_lora_weights"),
        ({"peft_type": "IA3"}, "the kind IA3"),
        ({"r": 0}, "no rank and alpha"),
    ],
)
def test_an_adapter_of_another_kind_is_refused_by_what_it_is(folder: Path, config: dict[str, Any], text: str) -> None:
    add_adapter(folder, {QUERY: (24, 24)}, **config)
    with pytest.raises(CheckpointError, match=rf"cannot merge \({text}\)"):
        logits(folder)


@pytest.mark.parametrize("initialized", [True, False, None, "gaussian", "EVA", "orthogonal"])
def test_an_adapter_that_leaves_its_base_as_it_is_is_merged(folder: Path, initialized: Any) -> None:
    alone = logits(folder)
    add_adapter(folder, {QUERY: (40, 24)}, init_lora_weights=initialized)
    assert not torch.equal(logits(folder), alone)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("model.layers.7.self_attn.q_proj", r"model\.layers\.7.* its network does not have"),
        ("model.embed_tokens", r"model\.embed_tokens \(Embedding\)"),
        (DOWN, r"weights of \[24, 24\] for .*, which has \[24, 37\]"),
    ],
)
def test_an_adapter_that_does_not_fit_its_base_is_refused(folder: Path, target: str, text: str) -> None:
    add_adapter(folder, {target: (24, 24)})
    with pytest.raises(CheckpointError, match=text):
        logits(folder)


def test_an_adapter_without_its_weights_is_no_model(folder: Path) -> None:
    add_adapter(folder, {QUERY: (40, 24)})
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"without adapter_model\.safetensors"):
        logits(folder)
