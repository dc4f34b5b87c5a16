"""The type and format of stored weights, by file names, small JSON files and headers, before any weights are read.

GGUF is llama.cpp's single-file format; its header is read within limits before any library opens the file. Layout:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. transformers reads it (`gguf_file=`) and dequantizes every
weight, with the packages gguf and accelerate (requirements-gguf.txt).
"""

import json
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError, safe_open

from i18n import N_, msg
from model.errors import CheckpointError, first_line

BITSANDBYTES, GGUF = ("bitsandbytes", "accelerate"), ("gguf", "accelerate")  # the packages needed to read each
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
INTEGERS = N_(
    "{model}: {tensor} is stored as integers ({stored}), and config.json has no quantization_config that says how to "
    "compute its weights from them. Choose the repository with the unquantized weights."
)
NOT_INSTALLED = N_(
    "{model} is stored by bitsandbytes, and reading it needs the packages bitsandbytes and accelerate (pip install -r "
    "requirements-bitsandbytes.txt)."
)
DAMAGED = N_("{model}: {file} is damaged or truncated ({why}). Delete it and fetch it again.")
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODULES = "modules.json"  # sentence-transformers' list of modules
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # bytes per number in safetensors; 1 for other types
INTEGER_TYPES = {f"{sign}{bits}" for sign in "IU" for bits in (8, 16, 32, 64)}
WEIGHT = re.compile(r"([._]|^)(weight|proj)$")  # names of weight matrices, not of stored masks or positions
FOUR_BITS = "NF4", "FP4"
MAX_HEADER_BYTES = 50_000_000  # as for configuration and tokenizer of other models
MAX_FIELDS, MAX_TENSORS, MAX_AXES = 10_000, 100_000, 4
GGUF_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # type -> bytes of a value
GGUF_CHAT_TEMPLATE, MAX_KEY = b"tokenizer.chat_template", 65_535  # a field name; most bytes of a name, by GGUF
TEXT, ARRAY = 8, 9  # the types of variable size
GGUF_NOT_INSTALLED = N_(
    "{model} is a GGUF file, and reading one needs the packages gguf and accelerate (pip install -r "
    "requirements-gguf.txt)."
)
GGUF_DAMAGED = N_("{model}: {file} is not a complete GGUF file ({why}). Delete it and fetch it again.")
GGUF_UNREADABLE = N_("{model}: {file} cannot be read ({why}). Choose another GGUF file, or the model it was made from.")
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
    """Check that a model's format is supported. read: name -> a small JSON file's content. Raises CheckpointError."""
    if ADAPTER in files and not has_adapter_and_base(files):
        named = read(ADAPTER).get("base_model_name_or_path")
        base = str(named)[:200] if named else msg("its base model")
        raise CheckpointError(msg(ADAPTER_ALONE, model=name, base=base))
    several = [] if gguf_file(name, files) else sorted(file for file in files if file.endswith(".gguf"))
    if several and not any(file.endswith(".safetensors") for file in files):
        raise CheckpointError(msg(SEVERAL_GGUF, model=name, files=", ".join(several[:5]), first=several[0]))
    if SPLIT.search(gguf_file(name, files)):
        raise CheckpointError(msg(SPLIT_GGUF, model=name))


def gguf_file(name: str, files: Collection[str]) -> str:
    """Return the GGUF file that weights are read from: the one that the model's name ends with, or the only one of a
    folder without other weights; "" for none."""
    named = name.replace("\\", "/").rpartition("/")[2]
    if named.endswith(".gguf"):
        return named
    found = [file for file in files if file.endswith(".gguf")]
    return found[0] if len(found) == 1 and not any(file.endswith(".safetensors") for file in files) else ""


def has_adapter_and_base(files: Collection[str]) -> bool:
    """Whether the files are an adapter together with the weights of its base model."""
    whole = any(re.match(r"model\b.*\.safetensors$", file) for file in files)
    return ADAPTER in files and "config.json" in files and whole


def quantization_of(config: Mapping[str, Any]) -> Any:
    """Return the quantization_config of a configuration or of a part such as `text_config`; None without one."""
    parts = (config, *(value for value in config.values() if isinstance(value, dict)))
    return next((found for part in parts if (found := part.get("quantization_config"))), None)


def bitsandbytes_type(config: Mapping[str, Any]) -> str | None:
    """Return how bitsandbytes stored a model's weights, "NF4", "FP4" or "INT8"; None if it did not."""
    found = quantization_of(config)
    if not isinstance(found, dict) or str(found.get("quant_method")).lower() != "bitsandbytes":
        return None
    four_bits = "NF4" if found.get("bnb_4bit_quant_type") == "nf4" else "FP4"
    return four_bits if found.get("load_in_4bit") else "INT8"


def check_config(name: str, config: Mapping[str, Any]) -> None:
    """Check that quantized weights can be dequantized here. Raises CheckpointError."""
    found = quantization_of(config)
    if bitsandbytes_type(config):
        if not all(map(find_spec, BITSANDBYTES)):
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
    """Return transformers' `variant`: "fp16" for model.fp16.safetensors. None for model.safetensors, or for several."""
    found = {match[1] for match in map(VARIANT.match, files) if match is not None}
    return found.pop() if len(found) == 1 and "model.safetensors" not in files else None


def transformer_folder(folder: Path, read: Callable[[Path], Any]) -> Path:
    """Return the folder of a sentence-transformers folder's first module; any other folder as it is."""
    if (folder / "config.json").is_file() or not (folder / MODULES).is_file():
        return folder
    inside = folder / first_module(read(folder / MODULES))
    return inside if (inside / "config.json").is_file() else folder


def first_module(modules: Any) -> str:
    """Return the folder of sentence-transformers' first module as "name/"; "" if it has none."""
    first = modules[0] if isinstance(modules, list) and modules else None
    path = first.get("path") if isinstance(first, dict) else None
    return f"{path}/" if isinstance(path, str) and re.fullmatch(r"\w[\w.-]*", path) else ""


def safetensors_type(name: str, paths: Iterable[Path]) -> str:
    """Return the type of most of the weights in these files, or bitsandbytes' 4-bit type. Raises CheckpointError for a
    truncated file."""
    numbers: Counter[str] = Counter()
    for path in paths:
        with _opened(name, path) as file:
            keys = list(file.keys())
            for packed in FOUR_BITS:  # named in the quantization state, whatever the config says
                if any(key.endswith(f".bitsandbytes__{packed.lower()}") for key in keys):
                    return packed
            for part in map(file.get_slice, keys):
                stored = part.get_dtype()
                numbers[stored] += prod(part.get_shape()) if stored in WIDTHS else 0  # masks may be stored too
    return numbers.most_common(1)[0][0] if numbers else "F32"


def check_no_integers(name: str, paths: Iterable[Path]) -> None:
    """Check that no weight matrix in unquantized files is stored as integers. Raises CheckpointError."""
    for path in paths:
        with _opened(name, path) as file:
            for key in filter(WEIGHT.search, file.keys()):
                part = file.get_slice(key)
                stored = part.get_dtype()
                if stored in INTEGER_TYPES and len(part.get_shape()) > 1:
                    raise CheckpointError(msg(INTEGERS, model=name, tensor=key, stored=stored))


def count_safetensors_weights(name: str, path: Path) -> int:
    """Return how many numbers a file contains. bitsandbytes stores a 4-bit weight as one column, two numbers per byte.
    Raises CheckpointError for a truncated file."""
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


@dataclass(frozen=True)
class GgufHeader:
    """The header of a GGUF file. numbers: how many weights the file contains. stored: the type of most of them, as
    "Q4_K", "Q8_0" or "F16". chat_template: whether it has one."""

    numbers: int
    stored: str
    chat_template: bool


def gguf_header(name: str, path: Path) -> GgufHeader:
    """Read a GGUF header. Raises CheckpointError for an incomplete file, too large a header or a missing package."""
    if not all(map(find_spec, GGUF)):
        raise CheckpointError(msg(GGUF_NOT_INSTALLED, model=name))
    try:
        with path.open("rb") as file:
            return _GgufReader(file).header()
    except (OSError, ValueError, struct.error) as error:
        raise CheckpointError(msg(GGUF_DAMAGED, model=name, file=path.name, why=first_line(error))) from None


def gguf_config(name: str, path: Path) -> dict[str, Any]:
    """Return transformers' configuration of a GGUF header. Raises CheckpointError if there is none."""
    gguf_header(name, path)
    from transformers import AutoConfig  # takes seconds to import

    try:
        found = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - an untrusted header may make its reader raise anything
        raise CheckpointError(msg(GGUF_UNREADABLE, model=name, file=path.name, why=first_line(error))) from None
    as_json: dict[str, Any] = json.loads(found.to_json_string(use_diff=False))
    return as_json


class _GgufReader:
    """A reader of a little-endian header from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    def header(self) -> GgufHeader:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        if self._take("4s") != b"GGUF":
            raise ValueError(msg("it does not begin with GGUF"))
        _, tensors, fields = self._take("I"), self._take("Q"), self._take("Q")
        if fields > MAX_FIELDS or tensors > MAX_TENSORS:
            raise ValueError(msg("it lists {fields:,} fields and {tensors:,} tensors", fields=fields, tensors=tensors))
        chats = False
        for _ in range(fields):
            length = self._take("Q")
            if length > MAX_KEY:
                raise ValueError(msg("a name of {length:,} bytes", length=length))
            chats |= self._file.read(length) == GGUF_CHAT_TEMPLATE
            self._skip_value(self._take("I"))
        numbers: Counter[str] = Counter()
        needed = 0  # bytes of the tensors after the header
        for _ in range(tensors):
            self._skip(self._take("Q"))  # the tensor's name
            axes = self._take("I")
            if axes > MAX_AXES:
                raise ValueError(msg("a tensor of {axes} axes", axes=axes))
            count = prod(self._take("Q") for _ in range(axes))
            kind = GGMLQuantizationType(self._take("I"))
            block, size = GGML_QUANT_SIZES[kind]
            needed = max(needed, self._take("Q") + count // block * size)
            numbers[kind.name] += count
        if not numbers or self._file.tell() + needed > self._size:
            raise ValueError(msg("its tensors end at byte {end:,} and the file at {size:,}",
                                 end=self._file.tell() + needed, size=self._size))  # fmt: skip
        return GgufHeader(numbers.total(), numbers.most_common(1)[0][0], chats)

    def _take(self, form: str) -> Any:
        return struct.unpack("<" + form, self._file.read(struct.calcsize("<" + form)))[0]

    def _skip(self, count: int) -> None:
        end = self._file.tell() + count
        if end > min(self._size, MAX_HEADER_BYTES):
            raise ValueError(msg("its header is longer than {most:,} bytes", most=min(self._size, MAX_HEADER_BYTES)))
        self._file.seek(count, os.SEEK_CUR)

    def _skip_value(self, kind: int) -> None:
        if kind == TEXT:
            self._skip(self._take("Q"))
        elif kind in GGUF_WIDTHS:
            self._skip(GGUF_WIDTHS[kind])
        elif kind != ARRAY:
            raise ValueError(msg("a value of type {kind}", kind=kind))
        else:
            of_each, count = self._take("I"), self._take("Q")
            if of_each in GGUF_WIDTHS:
                self._skip(count * GGUF_WIDTHS[of_each])
            elif of_each != TEXT:
                raise ValueError(msg("an array of type {kind}", kind=of_each))
            else:
                for _ in range(count):  # ends at the end of the file at the latest
                    self._skip(self._take("Q"))
