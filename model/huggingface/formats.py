"""The types and formats in which weights are stored, known from file names, small JSON files and headers alone."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from i18n import N_, msg
from model.errors import CheckpointError

PACKAGES = ("bitsandbytes", "accelerate")
ADAPTER_ALONE = N_(
    "{model} is an adapter (LoRA) for {base}, not a model by itself. Choose {base}, or merge the two (peft's "
    "merge_and_unload) and choose the result."
)
SEVERAL_GGUF = N_("{model} contains several GGUF files ({files}). Choose one: add its name, {model}/{first}.")
SPLIT_GGUF = N_(
    "{model} is a part of a GGUF model that is split into several files, which Unmask does not join. "
    "Join them (llama-gguf-split --merge), or choose another file."
)
QUANTISED = N_(
    "{model} is stored quantized ({how}), which Unmask cannot read. Choose the repository with the unquantized weights."
)
NOT_INSTALLED = N_(
    "{model} is stored by bitsandbytes, and reading it needs the packages bitsandbytes and accelerate (pip install -r "
    "requirements-bitsandbytes.txt)."
)
DAMAGED = N_("{model}: {file} is damaged or truncated ({why}). Delete it and fetch it again.")
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODULES = "modules.json"  # of sentence-transformers
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # bytes of a number in safetensors; of other types 1
FOUR_BITS = "NF4", "FP4"
SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
VARIANT = re.compile(r"model\.(fp16|bf16|fp32|float16|bfloat16|float32)\.safetensors$")
QUANTISED_AS = {
    "gptq": "GPTQ",
    "awq": "AWQ",
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
    several = [] if gguf_file(name, files) else sorted(file for file in files if file.endswith(".gguf"))
    if several and not any(file.endswith(".safetensors") for file in files):
        raise CheckpointError(msg(SEVERAL_GGUF, model=name, files=", ".join(several[:5]), first=several[0]))
    if SPLIT.search(gguf_file(name, files)):
        raise CheckpointError(msg(SPLIT_GGUF, model=name))


def gguf_file(name: str, files: Collection[str]) -> str:
    """The GGUF file that a model's weights are read from: the one its name ends with, or the only one of a folder
    without other weights; "" for none."""
    named = name.replace("\\", "/").rpartition("/")[2]
    if named.endswith(".gguf"):
        return named
    found = [file for file in files if file.endswith(".gguf")]
    return found[0] if len(found) == 1 and not any(file.endswith(".safetensors") for file in files) else ""


def is_beside_its_base(files: Collection[str]) -> bool:
    """Whether the files are an adapter and the weights of its base model."""
    whole = any(re.match(r"model\b.*\.safetensors$", file) for file in files)
    return ADAPTER in files and "config.json" in files and whole


def bitsandbytes_type(config: Mapping[str, Any]) -> str | None:
    """How bitsandbytes stored a model's weights: "NF4", "FP4" or "INT8"; None where it did not."""
    found = config.get("quantization_config")
    if not isinstance(found, dict) or str(found.get("quant_method")).lower() != "bitsandbytes":
        return None
    four_bits = "NF4" if found.get("bnb_4bit_quant_type") == "nf4" else "FP4"
    return four_bits if found.get("load_in_4bit") else "INT8"


def check_config(name: str, config: Mapping[str, Any]) -> None:
    """Raises CheckpointError for quantised weights that cannot be dequantised here."""
    found = config.get("quantization_config")
    if bitsandbytes_type(config):
        if not all(map(find_spec, PACKAGES)):
            raise CheckpointError(msg(NOT_INSTALLED, model=name))
        return
    if isinstance(config.get("quantization"), dict) and not found:
        how: str = msg("MLX's quantization, for Apple's chips")
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


def safetensors_type(name: str, path: Path) -> str:
    """The type of a file's weights; of 4 bits, bitsandbytes' own. Raises CheckpointError for a truncated file."""
    with _opened(name, path) as file:
        keys = list(file.keys())
        for packed in FOUR_BITS:  # in the name of what describes a weight, by which it is read whatever the config says
            if any(key.endswith(f".bitsandbytes__{packed.lower()}") for key in keys):
                return packed
        return str(file.get_slice(keys[0]).get_dtype()) if keys else "F32"


def safetensors_numbers(name: str, path: Path) -> int:
    """How many numbers a file holds. bitsandbytes keeps a weight of 4 bits as one column, two numbers to a byte. Raises
    CheckpointError for a truncated file."""
    with _opened(name, path) as file:
        parts = [file.get_slice(key) for key in file.keys()]  # noqa: SIM118 - not a dict
        sizes = [(part.get_shape(), WIDTHS.get(part.get_dtype(), 1)) for part in parts]
        return sum(prod(shape) * (2 * width if shape[1:] == [1] else 1) for shape, width in sizes)


@contextmanager
def _opened(name: str, path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CheckpointError(msg(DAMAGED, model=name, file=path.name, why=error)) from None
