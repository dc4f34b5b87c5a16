"""Differences of the masks that transformers makes and draws, and of the measured one, from the declared one.

    python -m tests.benchmarks.declared_masks     about a minute

Declared: by the model's configuration. Drawn: by AttentionMaskVisualizer for the same model, saved to a folder. Made:
returned by create_causal_mask and its siblings for one row of 24 tokens in the model's own forward, multiplied over the
layers as in `Declared.reach` (a mask that is made once stands for every layer of its kind).
"""

import sys
import tempfile
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import AutoTokenizer
from transformers.utils import attention_visualizer
from transformers.utils.attention_visualizer import AttentionMaskVisualizer

from mask_check.check import check
from mask_check.declared import Declared, declare
from tests.model.huggingface.families import DECODERS, random_network, save

MAKERS = ("create_causal_mask", "create_sliding_window_causal_mask", "create_chunked_causal_mask")
KINDS = ("full", "sliding", "chunked")  # of config.layer_types, in the order of MAKERS


def made_by(network: torch.nn.Module, length: int) -> Tensor | None:
    """Return bool [T,T], which token (column) may reach which output (row) by the masks made; None without masks."""
    masks: dict[str, Tensor] = {}
    source = sys.modules[type(network).__module__]
    with ExitStack() as stack:
        for name, kind in zip(MAKERS, KINDS, strict=True):
            make = getattr(source, name, None)
            if make is None:
                continue

            def recorded(*given: object, make=make, kind=kind, **named: object) -> object:
                found = make(*given, **named)
                if isinstance(found, Tensor):
                    masks[kind] = (found if found.dtype == torch.bool else found == 0)[0, 0]
                return found

            stack.enter_context(patch.object(source, name, recorded))
        network.set_attn_implementation("eager")
        network(input_ids=torch.randint(5, 40, (1, length)), use_cache=False)
    count = network.config.num_hidden_layers
    types = getattr(network.config, "layer_types", None) or [next(iter(masks), "")] * count
    kinds = [next((kind for kind in KINDS if kind in one), "") for one in types]
    return Declared(tuple(masks[kind] for kind in kinds), "").reach if all(one in masks for one in kinds) else None


def drawn(name: str, length: int) -> Tensor:
    """Return bool [T,T], the mask that AttentionMaskVisualizer draws for a saved model, taken before it is printed."""
    masks: list[Tensor] = []

    def keep(_words: object, mask: Tensor, **_more: object) -> str:
        masks.append(mask[0, 0].bool())
        return ""

    with tempfile.TemporaryDirectory() as where, ExitStack() as stack:
        folder = str(save(name, Path(where)))
        around = len(AutoTokenizer.from_pretrained(folder)("a")["input_ids"]) - 1
        stack.enter_context(patch.object(attention_visualizer, "generate_attention_matrix_from_mask", keep))
        stack.enter_context(redirect_stdout(StringIO()))
        AttentionMaskVisualizer(folder)(" ".join(["a"] * (length - around)))
    return masks[0]


def main() -> None:
    print("Pairs that differ from what is declared\n")
    print("| model type | made | drawn | measured |\n|---|---|---|---|")
    same = 0
    for name in DECODERS:
        network = random_network(name)
        report = check(network)
        declared = declare(network.config, report.length).reach
        made = made_by(network, report.length)
        differing = "none is made" if made is None else int((made != declared).sum())
        measured = "–" if report.mask is None else int((torch.tensor(report.mask.reaches) != declared).sum())
        layers = (drawn(name, report.length),) * network.config.num_hidden_layers
        shown = int((Declared(layers, "").reach != declared).sum())
        same += differing == measured == shown == 0
        if differing or measured or shown:
            print(f"| {name} | {differing} | {shown} | {measured} |", flush=True)
    print(f"\n{same} of {len(DECODERS)} agree in every pair")


if __name__ == "__main__":
    main()
