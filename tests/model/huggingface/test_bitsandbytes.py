"""Tests of weights that bitsandbytes stored in 4 or 8 bits: the model shown has them as they are dequantized here."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from model import catalog, hardware
from model.circuits.ov_qk import composition, qk
from model.errors import CheckpointError, TooLarge
from model.huggingface import adapter, checkpoint_files, formats
from serving.settings import Settings
from tests.model.huggingface import families
from tests.model.huggingface.family import TEXTS, assert_shown
from tests.tensors import largest_difference

BLOCK = 64  # 4-bit numbers that share a scale
STORED = {
    "NF4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "FP4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "INT8": BitsAndBytesConfig(load_in_8bit=True),
}
NESTED = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)


def quantized(folder: Path, stored: str) -> Path:
    """Save a copy of a model with its linear layers stored by bitsandbytes, and return its folder."""
    packed = folder.with_name(stored)
    network = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=STORED.get(stored, NESTED), device_map="cpu"
    )
    network.save_pretrained(packed)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            shutil.copy(folder / name, packed)
    return packed


def dequantized(parts: dict[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    """Return a weight [out,in] of a file: 8-bit with a scale for each row (Dettmers et al. 2022, arXiv:2208.07339), or
    4-bit with a table of 16 numbers and a scale for each block (Dettmers et al. 2023, arXiv:2305.14314)."""
    stored = parts[name]
    if stored.dtype == torch.int8:
        return stored.float() * parts[name.replace("weight", "SCB")][:, None] / 127
    if stored.dtype != torch.uint8:
        return stored
    numbers = torch.stack([stored >> 4, stored & 15], -1).flatten()[: shape.numel()].long()
    scales = parts[f"{name}.absmax"].repeat_interleave(BLOCK)[: len(numbers)]
    return (parts[f"{name}.quant_map"][numbers] * scales).view(shape)


@pytest.mark.parametrize("stored", STORED)
def test_what_is_shown_are_the_dequantized_weights(stored: str, folder: Path) -> None:
    packed = quantized(folder, stored)
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    parts, changed = load_file(packed / "model.safetensors"), 0
    with torch.inference_mode():
        for name, weight in network.named_parameters():
            found = dequantized(parts, name, weight.shape)
            changed += not torch.equal(weight, found)
            weight.copy_(found)
    assert changed == 7 * network.config.num_hidden_layers, "q, k, v, o and the MLP's three of each layer"

    assert_shown(str(packed), stored, network)


@pytest.mark.parametrize("stored", STORED)
def test_memory_is_that_of_the_dequantized_weights(stored: str, folder: Path) -> None:
    packed = quantized(folder, stored)
    numbers = sum(weight.numel() for weight in AutoModelForCausalLM.from_pretrained(folder).parameters())
    overhead = 7 * 3 * 150  # scales, a table and a description of each weight
    assert numbers <= checkpoint_files.count_weights("m", packed) < numbers + overhead
    with pytest.raises(TooLarge, match="of memory for its weights"):
        catalog.load(str(packed), settings=Settings(max_weights_gb=(4 * numbers - 1) / 1e9))


def test_other_precisions(folder: Path) -> None:
    model = catalog.load(str(quantized(folder, "NF4")), settings=Settings(precision="bfloat16"))
    assert "stored in NF4 and computed in bfloat16 on" in hardware.describe_hardware(model.hardware, "NF4")


@pytest.mark.parametrize("quant_type", ["fp4", None, "NF4"])
def test_the_type_is_the_files_own_whatever_the_configuration_says(quant_type: str | None, folder: Path) -> None:
    packed = quantized(folder, "NF4")
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"]["bnb_4bit_quant_type"] = quant_type
    (packed / "config.json").write_text(json.dumps(config))
    assert checkpoint_files.stored_type("m", packed) == "NF4"


def test_a_file_without_its_scales_is_refused(folder: Path) -> None:
    packed = quantized(folder, "NF4")
    parts = load_file(packed / "model.safetensors")
    kept = {name: part for name, part in parts.items() if "layers.0.mlp.up_proj.weight." not in name}
    save_file(kept, packed / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError):
        catalog.load(str(packed), settings=Settings())


@pytest.mark.parametrize(
    ("stored", "part", "values"),
    [
        ("NF4", "absmax", torch.ones(1)),
        ("NF4", "quant_map", torch.ones(2)),
        ("NF4", "quant_state.bitsandbytes__nf4", {"shape": [24, 37]}),
        ("NF4", "quant_state.bitsandbytes__nf4", {"shape": [800, 24]}),
        ("NF4", "quant_state.bitsandbytes__nf4", {"blocksize": 32}),
        ("nested", "absmax", torch.ones(1, dtype=torch.uint8)),
        ("nested", "nested_quant_map", torch.ones(2)),
        ("nested", "nested_absmax", torch.ones(0)),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused(
    stored: str, part: str, values: Tensor | dict, folder: Path
) -> None:
    packed = quantized(folder, stored)
    parts, name = load_file(packed / "model.safetensors"), f"model.layers.0.mlp.up_proj.weight.{part}"
    if isinstance(values, dict):
        changed = json.loads(bytes(parts[name].tolist())) | values
        values = torch.tensor(list(json.dumps(changed).encode()), dtype=torch.uint8)
    save_file(parts | {name: values}, packed / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="the weights do not fit the configuration"):
        catalog.load(str(packed), settings=Settings())


@pytest.mark.parametrize("stored", ["NF4", "INT8"])
def test_gpt2_whose_weights_are_the_other_way_round(stored: str, tmp_path: Path) -> None:
    folder = families.save("gpt2", tmp_path / "gpt2")
    packed = quantized(folder, stored)
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    parts = load_file(packed / "model.safetensors")
    with torch.inference_mode():
        for name, weight in network.named_parameters():
            if weight.shape != parts[name].shape or parts[name].dtype != weight.dtype:
                weight.copy_(dequantized(parts, name, weight.T.shape).T)
    model = catalog.load(str(packed), settings=Settings())
    batch = model.encode(TEXTS[:2])
    with torch.inference_mode():
        theirs = network(batch.ids, attention_mask=batch.keep.long()).logits
    assert largest_difference(model.run(batch).logits[batch.keep], theirs[batch.keep]) < 1e-4
    network.save_pretrained(folder)
    plain = adapter.load(str(folder), settings=Settings())
    assert largest_difference(*(torch.tensor(qk(one, 1, 2).effects) for one in (model, plain))) < 1e-4
    np.testing.assert_allclose(composition(model), composition(plain), atol=1e-5)


def test_without_the_packages_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = quantized(folder, "INT8")
    monkeypatch.setattr(formats, "BITSANDBYTES", ("no_such_package",))
    with pytest.raises(CheckpointError, match=r"pip install -r requirements-bitsandbytes\.txt"):
        catalog.inspect(str(packed), Settings())
