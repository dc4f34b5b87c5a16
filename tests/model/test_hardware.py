"""Tests of device and precision: chosen by settings, shown on pages, part of every result's key, no other device used.

Tests on a GPU run where there is one: `python -m pytest tests/model/test_hardware.py`.
"""

import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

import unmask
from model import catalog, hardware
from model.attention import attend, attention_stages
from model.errors import CheckpointError
from model.hardware import Hardware
from model.masks import MaskSpec
from serving.settings import Settings
from tests.model.huggingface import families
from tests.model.on_pretend_device import TEXTS, measured
from tests.tensors import largest_difference
from tests.tiny import save_tiny
from ui.sidebar.models import model_found

ROOT = Path(__file__).parents[2]
NUMBERS = 7 * 10**9
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and torch finds none here")
HALVES = {"float16": 8e-3, "bfloat16": 8e-2}  # of the largest logit: twice the measured 4e-3 and 4e-2


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return folders of a Llama with grouped queries, a Gemma 2 with windows and a soft-cap, and Unmask's decoder."""
    folder = tmp_path_factory.mktemp("models")
    made = [families.save(name, folder / name) for name in ("llama", "gemma2")]
    (folder / "tiny").mkdir()
    save_tiny(folder / "tiny")
    return [*made, folder / "tiny"]


def test_without_a_gpu_all_is_on_the_cpu_and_a_device_asked_for_is_missed_in_words() -> None:
    with patch("torch.cuda.is_available", return_value=False):
        assert hardware.choose_hardware(Settings(), "F32", NUMBERS) == Hardware()
        for device in ("cuda", "cuda:3", "mps"):
            found = hardware.choose_hardware(Settings(device=device), "F16", NUMBERS)
            assert (found.device, found.dtype) == ("cpu", torch.float32)
            assert hardware.describe_hardware(found, "F16") == (
                f"stored in float16 and computed in float32 on CPU ({device} was requested but is not available here, "
                "so it is computed on the CPU)"
            )


@pytest.mark.parametrize(("name", "own"), [
    ("story", {"precision": "bfloat16"}),
    ("induction", {"step": 50, "device": "cuda"}),
    ("story", {"device": "cpu", "precision": "float16"}),
    ("story", {"device_map": "auto"}),
])  # fmt: skip
def test_models_that_ship_take_no_other_device_or_precision(name: str, own: dict) -> None:
    with pytest.raises(ValueError, match=f"expected no {list(own)[-1]} for '{name}.* in float32 on the CPU"):
        unmask.load(name, **own)
    assert unmask.load(name, device="cpu", precision="float32").model.hardware == Hardware()


@pytest.mark.parametrize(("free", "precision", "device", "dtype"), [
    (20, "auto", "cuda", torch.float16),
    (20, "float32", "cpu", torch.float32),  # 28 GB
    (34, "float32", "cuda", torch.float32),
    (16, "auto", "cpu", torch.float32),  # 14 GB, and a run needs memory too
])  # fmt: skip
def test_a_gpu_is_used_where_the_weights_have_room_in_their_precision(
    free: int, precision: str, device: str, dtype: torch.dtype
) -> None:
    with (
        patch("torch.cuda.is_available", return_value=True),
        patch("torch.cuda.device_count", return_value=1),
        patch("torch.cuda.mem_get_info", return_value=(free * 10**9, 80 * 10**9)),
        patch("torch.cuda.get_device_name", return_value="Card"),
    ):
        found = hardware.choose_hardware(Settings.model_validate({"precision": precision}), "F16", NUMBERS)
        assert (found.device, found.dtype) == (device, dtype)
        assert ("on cuda (Card)" if device == "cuda" else f"cuda has {free}.0 GB free") in hardware.describe_hardware(
            found, "F16"
        )


@pytest.mark.parametrize(("name", "value"), [("DEVICE", "gpu"), ("PRECISION", "int8"), ("DEVICE_MAP", "all")])
def test_a_setting_that_means_nothing_is_refused_by_its_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as of_one:
        of_one.setenv(f"UNMASK_{name}", value)
        with pytest.raises(ValueError, match=rf"^UNMASK_{name}: expected [^\n]*auto[^\n]*, got '{value}'$"):
            Settings.from_environment()
    with pytest.raises(ValueError, match=rf"^{name.lower()}: expected [^\n]*auto[^\n]*, got '{value}'$"):
        unmask.load("story", **{name.lower(): value})


@pytest.mark.slow
def test_no_tensor_is_left_on_the_cpu_when_the_network_is_on_another_device(folders: list[Path]) -> None:
    command = [sys.executable, "-m", "tests.model.on_pretend_device", *map(str, folders)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = dict(line.split() for line in done.stdout.splitlines())
    assert set(found) == {"llama", "gemma2", "tiny"}
    assert all(float(difference) < 1e-5 for difference in found.values()), found


@pytest.mark.parametrize("precision", HALVES)
def test_half_precision_keeps_the_masks_exact_and_the_logits_near(precision: str, folders: list[Path]) -> None:
    for folder in folders:
        full = catalog.load(str(folder), settings=Settings(precision="float32"))
        half = catalog.load(str(folder), settings=Settings.model_validate({"precision": precision}))
        assert full.key != half.key
        assert precision in model_found(half)
        batch = half.encode(TEXTS, "left")
        for spec in (half.standard, MaskSpec(causal=False, sliding=3, padding_queries=True)):
            trace, expected = half.run(batch, spec), full.run(batch, spec)
            assert trace.layers[0].q.dtype == getattr(torch, precision)
            for row in (0, 1):
                weights, allowed = trace.weights(1, 2, row), trace.allowed(1, row)
                assert float(weights[~allowed].abs().sum()) == 0  # blocked is exactly 0, in padding's empty rows too
                sums = weights.sum(-1)[allowed.any(-1)]
                assert largest_difference(sums, torch.ones_like(sums)) < 1e-5
            off = largest_difference(trace.logits[batch.keep], expected.logits[batch.keep])
            assert off <= HALVES[precision] * float(expected.logits[batch.keep].abs().max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_row_without_keys_gives_zeros_in_half_precision(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 3, 5, 7, generator=generator).to(dtype) for _ in range(3))
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()
    allowed[3] = False
    stages, output = attention_stages(q, k, v, allowed), attend(q, k, v, allowed)
    assert stages.weights[..., 3, :].abs().sum() == stages.output[..., 3, :].abs().sum() == 0
    assert output[..., 3, :].abs().sum() == 0
    assert stages.weights.isfinite().all()
    assert largest_difference(output.float(), stages.output.float()) < 0.02


def test_weights_that_do_not_fit_into_memory_are_refused_before_they_are_read(folders: list[Path]) -> None:
    with pytest.raises(CheckpointError, match="of memory for its weights, and the limit is"):
        catalog.load(str(folders[0]), settings=Settings(max_weights_gb=1e-6))


def test_device_map_puts_weights_where_accelerate_says(folders: list[Path]) -> None:
    expected = measured(catalog.load(str(folders[0]), settings=Settings(device="cpu")))
    model = catalog.load(str(folders[0]), settings=Settings(device="cpu", device_map="auto"))
    assert "several devices (device_map=auto)" in model_found(model)
    pairs = zip(expected, measured(model), strict=True)
    most = 1e-4 if torch.cuda.is_available() else 1e-5  # accelerate uses a GPU if there is one
    assert max(float(abs(one - other).max(initial=0)) for one, other in pairs) < most


@GPU
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_a_gpu_gives_what_the_cpu_gives(precision: str, folders: list[Path]) -> None:
    tolerance = {"float32": 1e-3} | HALVES
    for folder in folders:
        expected = measured(catalog.load(str(folder), settings=Settings(device="cpu", precision="float32")))
        settings = Settings.model_validate({"device": "cuda", "precision": precision})
        model = catalog.load(str(folder), settings=settings)
        assert next(model.network.parameters()).device.type == "cuda"
        assert "cuda" in model_found(model)
        for one, other in zip(expected, measured(model), strict=True):
            if one.shape == other.shape and one.dtype == other.dtype:
                assert abs(one - other).max(initial=0) <= 10 * tolerance[precision] * max(abs(one).max(initial=0), 1)


@GPU
def test_a_gpu_leaves_an_empty_row_at_zero() -> None:
    q, k, v = (torch.randn(1, 2, 64, 32, device="cuda") for _ in range(3))
    allowed = torch.ones(64, 64, dtype=torch.bool, device="cuda").tril()
    allowed[7] = False
    assert attend(q, k, v, allowed)[..., 7, :].abs().sum() == 0
