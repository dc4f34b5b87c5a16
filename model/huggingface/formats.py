"""The types and formats in which weights are stored, known from file names and small JSON files alone."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from i18n import N_, msg
from model.errors import CheckpointError

FACTORS = {"F64": 0.5, "F32": 1, "F16": 2, "BF16": 2}  # bytes as float32 ÷ bytes in the file
ADAPTER_ALONE = N_(
    "{model} is an adapter (LoRA) for {base}, not a model by itself. Choose {base}, or merge the two (peft's "
    "merge_and_unload) and choose the result."
)
GGUF = N_(
    "{model} has its weights in GGUF, llama.cpp's format, and Unmask reads safetensors. Choose the repository that it "
    "was made from."
)
QUANTISED = N_(
    "{model} is stored quantised ({how}), which Unmask cannot read. Choose the repository with the unquantised weights."
)


def computes_bfloat16() -> bool:
    """Whether bfloat16 is about as fast here as float32.

    On processors without the instructions that oneDNN uses for it, a product of 512 tokens takes over ten times as
    long.
    """
    return torch.cuda.is_available() or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def held_in(stored: str) -> torch.dtype:
    """The type in memory of weights that are `stored`, in safetensors' names, as "BF16", "F32" …"""
    if stored == "BF16" and computes_bfloat16():
        return torch.bfloat16
    return torch.float16 if stored == "F16" and torch.cuda.is_available() else torch.float32


def growth(stored: str) -> float:
    """Bytes in memory ÷ bytes in the file."""
    return FACTORS.get(stored, 4) * held_in(stored).itemsize / torch.float32.itemsize


def said(stored: str) -> str:
    """A description of types that are not float32 in file and memory; "" for those."""
    if held_in(stored) == torch.float32:
        names = {"BF16": "bfloat16", "F16": "float16"}
        if stored not in names:
            return ""
        return msg("stored in {kind} and computed in float32, twice the memory", kind=names[stored])
    return msg("held and computed in {kind}, shown in float32", kind=str(held_in(stored)).removeprefix("torch."))


ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODULES = "modules.json"  # of sentence-transformers
VARIANT = re.compile(r"model\.(fp16|bf16|fp32|float16|bfloat16|float32)\.safetensors$")
QUANTISED_AS = {
    "gptq": "GPTQ",
    "awq": "AWQ",
    "bitsandbytes": N_("bitsandbytes (4 or 8 bits)"),
    "fp8": N_("8-bit floats"),
    "compressed-tensors": N_("compressed tensors"),
    "mxfp4": N_("MXFP4 (4-bit floats)"),
}


def check_files(name: str, files: Collection[str], read: Callable[[str], Mapping[str, Any]]) -> None:
    """Raises CheckpointError for a format that is not supported. read: name -> a small JSON file's content."""
    if ADAPTER in files and not is_beside_its_base(files):
        named = read(ADAPTER).get("base_model_name_or_path")
        base = str(named)[:200] if named else msg("its base model")
        raise CheckpointError(msg(ADAPTER_ALONE, model=name, base=base))
    if not any(file.endswith(".safetensors") for file in files) and any(file.endswith(".gguf") for file in files):
        raise CheckpointError(msg(GGUF, model=name))


def is_beside_its_base(files: Collection[str]) -> bool:
    """Whether the files are an adapter and the weights of its base model."""
    whole = any(re.match(r"model\b.*\.safetensors$", file) for file in files)
    return ADAPTER in files and "config.json" in files and whole


def check_config(name: str, config: Mapping[str, Any]) -> None:
    """Raises CheckpointError for quantised weights."""
    found = config.get("quantization_config")
    if isinstance(config.get("quantization"), dict) and not found:
        how: str = msg("MLX's quantisation, for Apple's chips")
    elif found:
        method = str(found.get("quant_method") if isinstance(found, dict) else found)
        known = QUANTISED_AS.get(method.lower())
        how = method[:40] if known is None else msg(known)
    else:
        return
    raise CheckpointError(msg(QUANTISED, model=name, how=how))


def variant(files: Collection[str]) -> str | None:
    """transformers' `variant`: "fp16" for model.fp16.safetensors. None for model.safetensors, or for several."""
    found = {match[1] for match in map(VARIANT.match, files) if match is not None}
    return found.pop() if len(found) == 1 and "model.safetensors" not in files else None


def other_weights(files: Collection[str]) -> str | None:
    """A file of weights whose name is not supported."""
    found = sorted(file for file in files if file.endswith(".safetensors") and not re.match(r"model-\d", file))
    return found[0] if found else None


def transformer_inside(folder: Path, read: Callable[[Path], Any]) -> Path:
    """The folder of a sentence-transformers folder's first module; any other folder itself."""
    if (folder / "config.json").is_file() or not (folder / MODULES).is_file():
        return folder
    inside = folder / first_module(read(folder / MODULES))
    return inside if (inside / "config.json").is_file() else folder


def first_module(modules: Any) -> str:
    """The folder of sentence-transformers' first module, "name/"; "" if it has none."""
    first = modules[0] if isinstance(modules, list) and modules else None
    path = first.get("path") if isinstance(first, dict) else None
    return f"{path}/" if isinstance(path, str) and re.fullmatch(r"\w[\w.-]*", path) else ""
