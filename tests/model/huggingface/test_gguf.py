"""Tests of GGUF files: the model shown has their dequantized weights; an untrusted header is read within limits."""

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import dequantize

from model import catalog
from model.errors import CheckpointError, TooLarge
from model.huggingface import chat, fetching, formats
from serving.settings import Settings
from tests.model.huggingface import gguf_models
from tests.model.huggingface.family import assert_shown

STORED = {"F16": "float16", "Q8_0": "Q8_0", "Q4_K_M": "Q4_K"}


@pytest.mark.parametrize("quantization", STORED)
def test_a_file_gives_the_logits_and_weights_of_its_dequantized_weights(quantization: str, tmp_path: Path) -> None:
    path = tmp_path / f"tiny-{quantization}.gguf"
    network = gguf_models.save(path, quantization)
    network.set_attn_implementation("eager")
    for name in (str(tmp_path), str(path)):
        model = assert_shown(name, STORED[quantization], network)
        assert model.num_heads == gguf_models.HEADS
        assert network.config.num_key_value_heads == model.describe().key_value_heads == gguf_models.SHARED


def test_a_block_of_q4_k_is_what_ggml_says_it_is() -> None:
    """Reference: dequantize_row_q4_K of ggml-quants.c, number by number."""
    block = gguf_models.q4_k(1, 256, np.random.default_rng(3))
    data = block[0].tobytes()
    d, minimum_scale = struct.unpack("<2e", data[:4])
    packed, numbers = data[4:16], data[16:]

    def scale_and_min(j: int) -> tuple[int, int]:
        if j < 4:
            return packed[j] & 63, packed[j + 4] & 63
        return (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6) << 4

    expected = []
    for j in range(8):
        scale, minimum = scale_and_min(j)
        quarter = numbers[32 * (j // 2) : 32 * (j // 2 + 1)]
        expected += [d * scale * ((byte >> 4) if j % 2 else byte & 15) - minimum_scale * minimum for byte in quarter]
    assert np.allclose(dequantize(block, Kind.Q4_K)[0], expected, rtol=1e-5, atol=1e-7)


def test_several_files_are_chosen_among_by_name(tmp_path: Path) -> None:
    for quantization in ("F16", "Q8_0"):
        gguf_models.save(tmp_path / f"{quantization}.gguf", quantization)
    with pytest.raises(CheckpointError, match=r"several GGUF files \(F16.gguf, Q8_0.gguf\). Choose one: add its name"):
        catalog.load(str(tmp_path), settings=Settings())
    assert "Q8_0" in catalog.load(f"{tmp_path}/Q8_0.gguf", settings=Settings()).describe().precision
    with pytest.raises(CheckpointError, match=r"there is no file Q5.gguf"):
        catalog.load(f"{tmp_path}/Q5.gguf", settings=Settings())
    (tmp_path / "a-00001-of-00002.gguf").touch()
    with pytest.raises(CheckpointError, match="split into several files"):
        catalog.load(f"{tmp_path}/a-00001-of-00002.gguf", settings=Settings())
    assert fetching._repository("someone/tiny/Q8_0.gguf") == ("someone/tiny", "Q8_0.gguf")


def test_the_chat_template_of_a_file_is_used(tmp_path: Path) -> None:
    gguf_models.save(tmp_path / "tiny.gguf", "F16")
    assert catalog.load(str(tmp_path), settings=Settings()).chats
    assert chat.render(str(tmp_path), Settings(), (("user", "hi"),)) == "<start>user: hi"


def test_memory_is_counted_as_loaded_before_anything_is_read(tmp_path: Path) -> None:
    gguf_models.save(tmp_path / "tiny.gguf", "Q4_K_M")
    numbers = formats.gguf_header("x", tmp_path / "tiny.gguf").numbers
    assert numbers == sum(weight.numel() for weight in catalog.load(str(tmp_path)).network.parameters())
    catalog.load(str(tmp_path), settings=Settings(max_weights_gb=4 * numbers / 1e9))
    with pytest.raises(TooLarge):
        catalog.load(str(tmp_path), settings=Settings(max_weights_gb=(4 * numbers - 4) / 1e9))


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def gguf_file(fields: int = 0, tensors: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + rest


@pytest.mark.parametrize(("data", "why"), [
    (b"PK\x03\x04", "does not begin with GGUF"),
    (gguf_file(fields=2**63), "it lists"),
    (gguf_file(tensors=2**40), "it lists"),
    (gguf_file(fields=1, rest=struct.pack("<Q", 2**62)), "a name of"),
    (gguf_file(fields=1, rest=text(b"a") + struct.pack("<IQ", 8, 2**62)), "its header is longer"),
    (gguf_file(fields=1, rest=text(b"a") + struct.pack("<IIQ", 9, 0, 2**61)), "its header is longer"),
    (gguf_file(fields=1, rest=text(b"a") + struct.pack("<IIQ", 9, 9, 1)), "an array of type 9"),
    (gguf_file(fields=1, rest=text(b"a") + struct.pack("<I", 77)), "a value of type 77"),
    (gguf_file(tensors=1, rest=text(b"t") + struct.pack("<I", 2**31)), "a tensor of 2147483648 axes"),
    (gguf_file(tensors=1, rest=text(b"t") + struct.pack("<I2QIQ", 2, 2**40, 2**20, 0, 0)), "its tensors end at byte"),
    (gguf_file(tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 4, 99, 0)), "99 is not a valid"),
    (gguf_file(tensors=1, rest=text(b"t")), "requires a buffer"),
    (gguf_file(), "its tensors end"),
])  # fmt: skip
def test_a_strangers_header_ends_in_a_sentence(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"x\.gguf is not a complete GGUF file") as raised:
        catalog.inspect(str(tmp_path), Settings())
    assert why in str(raised.value)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    gguf_models.save(tmp_path / "x.gguf", "F16")
    data = (tmp_path / "x.gguf").read_bytes()
    (tmp_path / "x.gguf").write_bytes(data[:-1000])
    with pytest.raises(CheckpointError, match="not a complete GGUF file"):
        catalog.load(str(tmp_path), settings=Settings())


def test_without_the_packages_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.gguf").write_bytes(gguf_file())
    monkeypatch.setattr(formats, "GGUF", ("no_such_package",))
    with pytest.raises(CheckpointError, match=r"pip install -r requirements-gguf\.txt"):
        catalog.load(str(tmp_path), settings=Settings())
