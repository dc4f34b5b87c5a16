"""In which type a model's weights are held in memory and computed with: the file's own where that is fast."""

import torch

from i18n import say

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
