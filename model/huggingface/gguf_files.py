"""GGUF, llama.cpp's format of one file: its header read within limits before any library sees the file.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. transformers reads it (`gguf_file=`) and dequantizes
every weight, with the packages gguf and accelerate (requirements-gguf.txt).
"""

import json
import os
import struct
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from i18n import N_, msg
from model.errors import CheckpointError, first_line

MOST_HEADER_BYTES = 50_000_000  # as much as configuration and tokenizer of other models
MOST_FIELDS, MOST_TENSORS, MOST_AXES = 10_000, 100_000, 4
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value, by its type
CHAT_TEMPLATE, MOST_KEY = b"tokenizer.chat_template", 65_535  # a field's name; bytes of one, as GGUF says
TEXT, ARRAY = 8, 9  # the types of other sizes
PACKAGES = ("gguf", "accelerate")
NOT_INSTALLED = N_(
    "{model} is a GGUF file, and reading one needs the packages gguf and accelerate (pip install -r "
    "requirements-gguf.txt)."
)
DAMAGED = N_("{model}: {file} is not a complete GGUF file ({why}). Delete it and fetch it again.")
UNREADABLE = N_("{model}: {file} cannot be read ({why}). Choose another GGUF file, or the model it was made from.")


@dataclass(frozen=True)
class Header:
    """What a GGUF file's header says. numbers: how many weights it holds. stored: the type of most of them, as "Q4_K",
    "Q8_0" or "F16". chat_template: whether it has one."""

    numbers: int
    stored: str
    chat_template: bool


def header(name: str, path: Path) -> Header:
    """Raises CheckpointError for a file that is not whole, or too large a header, or without the packages."""
    if not all(find_spec(package) for package in PACKAGES):
        raise CheckpointError(msg(NOT_INSTALLED, model=name))
    try:
        with path.open("rb") as file:
            return _Reader(file).header()
    except (OSError, ValueError, struct.error) as error:
        raise CheckpointError(msg(DAMAGED, model=name, file=path.name, why=first_line(error))) from None


def config(name: str, path: Path) -> dict[str, Any]:
    """The configuration that transformers makes of a header. Raises CheckpointError where it makes none."""
    header(name, path)
    from transformers import AutoConfig  # takes seconds to import

    try:
        found = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - a stranger's header raises whatever its reader happens to raise
        raise CheckpointError(msg(UNREADABLE, model=name, file=path.name, why=first_line(error))) from None
    as_json: dict[str, Any] = json.loads(found.to_json_string(use_diff=False))
    return as_json


class _Reader:
    """Reads a header from its beginning to its end, little-endian."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    def header(self) -> Header:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        if self._take("4s") != b"GGUF":
            raise ValueError(msg("it does not begin with GGUF"))
        _, tensors, fields = self._take("I"), self._take("Q"), self._take("Q")
        if fields > MOST_FIELDS or tensors > MOST_TENSORS:
            raise ValueError(msg("it lists {fields:,} fields and {tensors:,} tensors", fields=fields, tensors=tensors))
        chats = False
        for _ in range(fields):
            length = self._take("Q")
            if length > MOST_KEY:
                raise ValueError(msg("a name of {length:,} bytes", length=length))
            chats |= self._file.read(length) == CHAT_TEMPLATE
            self._skip_value(self._take("I"))
        numbers: Counter[str] = Counter()
        needed = 0  # bytes of the tensors, which follow the header
        for _ in range(tensors):
            self._skip(self._take("Q"))  # its name
            axes = self._take("I")
            if axes > MOST_AXES:
                raise ValueError(msg("a tensor of {axes} axes", axes=axes))
            count = prod(self._take("Q") for _ in range(axes))
            kind = GGMLQuantizationType(self._take("I"))
            block, size = GGML_QUANT_SIZES[kind]
            needed = max(needed, self._take("Q") + count // block * size)
            numbers[kind.name] += count
        if not numbers or self._file.tell() + needed > self._size:
            raise ValueError(msg("its tensors end at byte {end:,} and the file at {size:,}",
                                 end=self._file.tell() + needed, size=self._size))  # fmt: skip
        return Header(numbers.total(), numbers.most_common(1)[0][0], chats)

    def _take(self, form: str) -> Any:
        data = self._file.read(struct.calcsize("<" + form))
        return struct.unpack("<" + form, data)[0]

    def _skip(self, count: int) -> None:
        end = self._file.tell() + count
        if end > min(self._size, MOST_HEADER_BYTES):
            raise ValueError(msg("its header is longer than {most:,} bytes", most=min(self._size, MOST_HEADER_BYTES)))
        self._file.seek(count, os.SEEK_CUR)

    def _skip_value(self, kind: int) -> None:
        if kind == TEXT:
            self._skip(self._take("Q"))
        elif kind in WIDTHS:
            self._skip(WIDTHS[kind])
        elif kind != ARRAY:
            raise ValueError(msg("a value of type {kind}", kind=kind))
        else:
            of_each, count = self._take("I"), self._take("Q")
            if of_each in WIDTHS:
                self._skip(count * WIDTHS[of_each])
            elif of_each != TEXT:
                raise ValueError(msg("an array of type {kind}", kind=of_each))
            else:
                for _ in range(count):  # ended by the end of the file at the latest
                    self._skip(self._take("Q"))
