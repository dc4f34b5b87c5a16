"""On which device a model is computed, and in which precision: what the settings ask for, and what there is. Devices
have torch's names: "cpu", "cuda" (NVIDIA and ROCm), "cuda:1" …, "mps" (Apple)."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from i18n import N_, msg

if TYPE_CHECKING:
    from serving.settings import Settings

MEMORY_FACTOR = 1.2  # of the weights' memory: room for a run's states beside them
NO_DEVICE = N_("{device} was requested but is not available here, so it is computed on the CPU")
NO_ROOM = N_("its weights need {size:.1f} GB and {device} has {free:.1f} GB free, so it is computed on the CPU")
ROUNDINGS = 8  # times a 16-bit dtype's epsilon: random models of 13 families stay below 4.4, real changes are above 47
NAMES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}  # safetensors' names: torch's


@dataclass(frozen=True)
class Hardware:
    """device: as torch names it. dtype: of the weights in memory, and of what is computed from them. device_map: as
    accelerate takes it, "auto" for one; "" for all on `device`. fallback: why it is not the device asked for, or "".
    """

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    device_map: str = ""
    fallback: str = ""

    @property
    def key(self) -> str:
        """A part of the keys of results: other hardware rounds otherwise."""
        return f"{self.device_map or self.device} {precision_name(self.dtype)}"

    def name(self) -> str:
        """The device as a page shows it: "CPU", "cuda (NVIDIA H100)"."""
        kind = torch.device(self.device).type
        if self.device_map:
            return msg("several devices ({how})", how=f"device_map={self.device_map}")
        return f"{self.device} ({torch.cuda.get_device_name(self.device)})" if kind == "cuda" else self.device.upper()


CPU = Hardware()


def choose_hardware(settings: "Settings", stored: str, numbers: int) -> Hardware:
    """The hardware for so many weights, stored as safetensors calls it: what the settings ask for, else the CPU, with
    the reason. Uses no memory for it."""
    device = settings.device if settings.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    on_cpu = dtype_in_memory(stored, "cpu", settings.precision)
    if settings.device_map:
        return Hardware(device, dtype_in_memory(stored, device, settings.precision), settings.device_map)
    if not available(device):
        return Hardware("cpu", on_cpu, fallback=msg(NO_DEVICE, device=device))
    dtype = dtype_in_memory(stored, device, settings.precision)
    # the machine's own free memory is checked for every model
    free = int(torch.cuda.mem_get_info(torch.device(device))[0]) if device.startswith("cuda") else None
    size = numbers * dtype.itemsize
    if free is not None and size * MEMORY_FACTOR > free:
        why = msg(NO_ROOM, size=size / 1e9, device=device, free=free / 1e9)
        return Hardware("cpu", on_cpu, fallback=why)
    return Hardware(device, dtype)


def available(device: str) -> bool:
    kind, _, number = device.partition(":")
    if kind == "cuda":
        return torch.cuda.is_available() and int(number or 0) < torch.cuda.device_count()
    return kind == "cpu" or (kind == "mps" and torch.backends.mps.is_available())


def dtype_in_memory(stored: str, device: str, precision: str) -> torch.dtype:
    """The type in memory of weights that are `stored`, in safetensors' names, as "BF16", "F32" … precision: "float32",
    "bfloat16" or "float16"; "auto" keeps the stored one where the device computes it well."""
    if precision != "auto":
        found = getattr(torch, precision)
        assert isinstance(found, torch.dtype)  # the settings allow no other
        return found
    if stored == "BF16" and computes_bfloat16(device):
        return torch.bfloat16
    return torch.float16 if stored == "F16" and device != "cpu" else torch.float32


def computes_bfloat16(device: str) -> bool:
    """Whether bfloat16 is about as fast there as float32; without the instructions that oneDNN uses for it, a product
    of 512 tokens takes over ten times as long."""
    return device != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def rounding(dtype: torch.dtype, single: float) -> float:
    """How far two ways to compute the same logits may be apart, as a share of the largest. single: that in float32; in
    16 bits the output of every layer is rounded."""
    return max(single, ROUNDINGS * torch.finfo(dtype).eps)


def precision_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@cache
def describe_hardware(hardware: Hardware, stored: str = "") -> str:
    """In a few words: device and precision, and the type that is stored, where it is another one and known."""
    names = {"device": hardware.name(), "kind": precision_name(hardware.dtype), "stored": NAMES.get(stored, stored)}
    if names["kind"] == "float32" and names["stored"] not in ("", "float32", "float64"):
        words = msg("stored in {stored} and computed in float32 on {device}", **names)
    elif names["kind"] == "float32":
        words = msg("computed in float32 on {device}", **names)
    elif not stored:
        words = msg("computed in {kind} on {device}, shown in float32", **names)
    elif names["stored"] == names["kind"]:
        words = msg("stored and computed in {kind} on {device}, shown in float32", **names)
    else:
        words = msg("stored in {stored} and computed in {kind} on {device}, shown in float32", **names)
    return msg("{words} ({why})", words=words, why=hardware.fallback) if hardware.fallback else words
