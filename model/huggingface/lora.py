"""A LoRA adapter (Hu et al. 2021, arXiv:2106.09685) that lies beside its base, added to the base's weights.

What peft's merge_and_unload does, for the plain kind alone: W + (alpha / r)·B·A. Any other is refused by its name.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from i18n import say
from model.errors import CheckpointError
from model.huggingface import checkpoint_files, formats

BEFORE, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"  # of each tensor's name, and after it
# adapter_kwargs: transformers, with peft beside it, would put it in by itself
UNSEEN = {"subfolder": "no adapter"}  # not shown
NOT_PLAIN = (
    "use_dora",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "layer_replication",
    "trainable_token_indices",
)


@torch.inference_mode()
def merge(name: str, network: PreTrainedModel, folder: Path) -> bool:
    """Add the adapter in folder to the network's weights; False where there is none.

    Raises CheckpointError for one that is no plain LoRA or does not fit the network.
    """
    files = checkpoint_files.local_files(folder)
    if not formats.is_beside_its_base(files):
        return False
    config = checkpoint_files.read_json(name, folder / formats.ADAPTER)
    scale = _scale(name, config)
    try:
        tensors = load_file(folder / formats.ADAPTER_WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            say("{model}: its adapter's weights cannot be read ({why}). Fetch them again.", model=name, why=error)
        ) from None
    targets = {key.removesuffix(A) for key in tensors if key.endswith(A)}
    if not targets or set(tensors) != {target + end for target in targets for end in (A, B)}:
        raise _refusal(name, say("weights other than pairs of lora_A and lora_B"))
    for target in sorted(targets):
        _add(name, network, target, tensors[target + B].float() * scale, tensors[target + A].float())
    return True


def _scale(name: str, config: dict[str, Any]) -> float:
    kind = str(config.get("peft_type", "LORA"))
    if kind != "LORA":
        raise _refusal(name, say("the kind {kind}", kind=kind[:40]))
    used = [field for field in NOT_PLAIN if config.get(field)]
    if config.get("bias", "none") != "none" or config.get("lora_bias"):
        used.append("bias")
    if used:
        raise _refusal(name, ", ".join(used))
    alpha, rank = config.get("lora_alpha"), config.get("r")
    if not isinstance(alpha, int | float) or not isinstance(rank, int) or rank < 1:
        raise _refusal(name, say("no rank and alpha"))
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _add(name: str, network: PreTrainedModel, target: str, b: Tensor, a: Tensor) -> None:
    """b [out,rank], a [rank,in]."""
    try:
        module = network.get_submodule(target.removeprefix(BEFORE))
    except AttributeError:
        why = say("weights for {target}, which its network does not have", target=target[:80])
        raise _refusal(name, why) from None
    if not isinstance(module, nn.Linear | Conv1D) or module is network.get_output_embeddings():
        why = say("weights for {target} ({kind})", target=target[:80], kind=type(module).__name__)
        raise _refusal(name, why)
    shape = [*b.shape[:1], *a.shape[1:]]
    turned = isinstance(module, Conv1D)
    if turned:
        shape.reverse()
    if shape != list(module.weight.shape):  # before they are multiplied: little makes much
        shapes = {"shape": shape, "own": list(module.weight.shape)}
        raise _refusal(name, say("weights of {shape} for {target}, which has {own}", target=target[:80], **shapes))
    product = b @ a
    module.weight += (product.T if turned else product).to(module.weight)


def _refusal(name: str, what: str) -> CheckpointError:
    return CheckpointError(
        say(
            "{model} holds an adapter beside its base that this program cannot merge ({what}). Merge the two (peft's "
            "merge_and_unload), save the result, and choose that.",
            model=name,
            what=what,
        )
    )
