"""Ways in which models are stored that are not one folder of safetensors with a config.json: each named for what it is.

Judged by file names and small JSON files alone, before any weights are fetched.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from i18n import N_, say
from model.errors import CheckpointError

FACTORS = {"F64": 0.5, "F32": 1, "F16": 2, "BF16": 2}  # how much larger a file's weights get once they are float32


def computes_bfloat16() -> bool:
    """Whether bfloat16 is about as fast here as float32.

    Where a processor lacks the instructions that oneDNN wants for it, a product of 512 tokens takes over ten times as
    long, and float32 is the better choice though it takes twice the memory.
    """
    return torch.cuda.is_available() or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def held_in(stored: str) -> torch.dtype:
    """The type that weights get which a file holds as `stored`, in safetensors' names: "BF16", "F32" …"""
    if stored == "BF16" and computes_bfloat16():
        return torch.bfloat16
    return torch.float16 if stored == "F16" and torch.cuda.is_available() else torch.float32


def growth(stored: str) -> float:
    """How much larger such weights are in memory than in their file."""
    return FACTORS.get(stored, 4) * held_in(stored).itemsize / torch.float32.itemsize


def said(stored: str) -> str:
    """In a line of facts: where the type is not float32 from file to picture; "" else."""
    if held_in(stored) == torch.float32:
        names = {"BF16": "bfloat16", "F16": "float16"}
        if stored not in names:
            return ""
        return say("stored in {kind} and computed in float32, twice the memory", kind=names[stored])
    return say("held and computed in {kind}, shown in float32", kind=str(held_in(stored)).removeprefix("torch."))


ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODULES = "modules.json"  # sentence-transformers' list of what a text passes through
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
    """Raises CheckpointError for a format that is none of ours. read: a small JSON file's content, by its name."""
    if ADAPTER in files and not is_beside_its_base(files):
        base = str(read(ADAPTER).get("base_model_name_or_path") or say("its base model"))[:200]
        raise CheckpointError(
            say(
                "{model} is an adapter (LoRA) for {base}, not a model by itself. Choose {base}, or merge the two "
                "(peft's merge_and_unload) and choose the result.",
                model=name,
                base=base,
            )
        )
    if not any(file.endswith(".safetensors") for file in files) and any(file.endswith(".gguf") for file in files):
        raise CheckpointError(
            say(
                "{model} has its weights in GGUF, llama.cpp's format, and Unmask reads safetensors. Choose the "
                "repository that it was made from.",
                model=name,
            )
        )


def is_beside_its_base(files: Collection[str]) -> bool:
    """Whether an adapter lies in a folder with the whole weights of the model that it was made for."""
    whole = any(re.match(r"model\b.*\.safetensors$", file) for file in files)
    return ADAPTER in files and "config.json" in files and whole


def check_config(name: str, config: Mapping[str, Any]) -> None:
    """Raises CheckpointError for weights that are stored quantised."""
    found = config.get("quantization_config")
    if isinstance(config.get("quantization"), dict) and not found:
        how = say("MLX's quantisation, for Apple's chips")
    elif found:
        method = str(found.get("quant_method") if isinstance(found, dict) else found)
        known = QUANTISED_AS.get(method.lower())
        how = method[:40] if known is None else say(known)
    else:
        return
    raise CheckpointError(
        say(
            "{model} is stored quantised ({how}), which Unmask cannot read. Choose the repository with the "
            "unquantised weights.",
            model=name,
            how=how,
        )
    )


def variant(files: Collection[str]) -> str | None:
    """What stands in the name of the weights beside model and safetensors: "fp16" of model.fp16.safetensors. None where
    they are called model.safetensors, or where it is not clear which of several files they are."""
    found = {match[1] for match in map(VARIANT.match, files) if match is not None}
    return found.pop() if len(found) == 1 and "model.safetensors" not in files else None


def other_weights(files: Collection[str]) -> str | None:
    """A file of weights under a name that this program does not read."""
    found = sorted(file for file in files if file.endswith(".safetensors") and not re.match(r"model-\d", file))
    return found[0] if found else None


def transformer_inside(folder: Path, read: Callable[[Path], Any]) -> Path:
    """The folder with the transformer: its first module's, of a sentence-transformers' folder; else itself."""
    if (folder / "config.json").is_file() or not (folder / MODULES).is_file():
        return folder
    inside = folder / first_module(read(folder / MODULES))
    return inside if (inside / "config.json").is_file() else folder


def first_module(modules: Any) -> str:
    """The folder of the first of sentence-transformers' modules, "name/"; "" where it has none of its own."""
    first = modules[0] if isinstance(modules, list) and modules else None
    path = first.get("path") if isinstance(first, dict) else None
    return f"{path}/" if isinstance(path, str) and re.fullmatch(r"\w[\w.-]*", path) else ""
