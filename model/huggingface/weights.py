"""Which class of transformers a configuration is loaded as, and whether every weight of the files found its place."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.pytorch_utils import Conv1D

from i18n import N_, msg
from model.errors import CheckpointError, NotSupported
from model.hardware import CPU, Hardware
from model.huggingface import checkpoint_files, formats
from model.huggingface.internals import classes_of_task
from model.huggingface.stacks import stack_names

BEFORE, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"  # prefix and suffixes of the tensors
UNSEEN = {"subfolder": "no adapter"}  # not shown; adapter_kwargs: if peft is installed, transformers adds adapters
NOT_PLAIN = re.compile("use_dora|rank_pattern|alpha_pattern|modules_to_save|layer_replication|trainable_token_indices")
CANNOT_MERGE = N_(
    "{model} contains an adapter beside its base that Unmask cannot merge ({what}). Merge the two (peft's "
    "merge_and_unload), save the result, and choose that."
)
MISSING_WEIGHTS = N_(
    "{model} lacks {count} of the weights that its configuration requires ({first}). Fetch its files again, or choose "
    "another model."
)
UNEXPECTED_WEIGHTS = N_(
    "{model} contains weights that do not fit the network of its configuration ({listed}). Without them, another model "
    "would be shown: its config.json and its weights do not belong to the same model. Fetch both again."
)
NO_LANGUAGE_MODEL = N_("{model}: expected a language model (…ForCausalLM, …ForMaskedLM …), got {architecture}")


@torch.inference_mode()
def merge(name: str, network: PreTrainedModel, folder: Path) -> bool:
    """Add the adapter in folder to the network's weights; False where there is none.

    Raises CheckpointError for one that is no plain LoRA or does not fit the network.
    """
    files = checkpoint_files.local_files(folder)
    if not formats.is_beside_its_base(files):
        return False
    config = checkpoint_files.read_json(name, folder / formats.ADAPTER)
    try:
        scale = _scale(config)
        tensors = load_file(folder / formats.ADAPTER_WEIGHTS)
        targets = {key.removesuffix(A) for key in tensors if key.endswith(A)}
        if not targets or set(tensors) != {target + end for target in targets for end in (A, B)}:
            raise ValueError(msg("weights other than pairs of lora_A and lora_B"))
        for target in sorted(targets):
            _add(network, target, tensors[target + B].float() * scale, tensors[target + A].float())
    except ValueError as error:
        raise CheckpointError(msg(CANNOT_MERGE, model=name, what=str(error))) from None
    except (SafetensorError, OSError) as error:
        words = N_("{model}: its adapter's weights cannot be read ({why}). Fetch them again.")
        raise CheckpointError(msg(words, model=name, why=error)) from None
    return True


def _scale(config: dict[str, Any]) -> float:
    kind = str(config.get("peft_type", "LORA"))
    if kind != "LORA":
        raise ValueError(msg("the kind {kind}", kind=kind[:40]))
    used = [field for field, value in config.items() if value and NOT_PLAIN.fullmatch(field)]
    if config.get("bias", "none") != "none" or config.get("lora_bias"):
        used.append("bias")
    if used:
        raise ValueError(", ".join(used))
    alpha, rank = config.get("lora_alpha"), config.get("r")
    if not isinstance(alpha, int | float) or not isinstance(rank, int) or rank < 1:
        raise ValueError(msg("no rank and alpha"))
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _add(network: PreTrainedModel, target: str, b: Tensor, a: Tensor) -> None:
    """b [out,rank], a [rank,in]."""
    try:
        module = network.get_submodule(target.removeprefix(BEFORE))
    except AttributeError:
        raise ValueError(msg("weights for {target}, which its network does not have", target=target[:80])) from None
    if not isinstance(module, nn.Linear | Conv1D) or module is network.get_output_embeddings():
        raise ValueError(msg("weights for {target} ({kind})", target=target[:80], kind=type(module).__name__))
    left, right = (a.T, b.T) if isinstance(module, Conv1D) else (b, a)  # Conv1D's weight is [in,out]
    shape = [*left.shape[:1], *right.shape[1:]]
    if shape != list(module.weight.shape):  # before they are multiplied: little makes much
        shapes = {"shape": shape, "own": list(module.weight.shape)}
        raise ValueError(msg("weights of {shape} for {target}, which has {own}", target=target[:80], **shapes))
    module.weight += (left @ right).to(module.weight)


LANGUAGE_MODELS: dict[Any, str] = {  # auto class -> its task, in order of preference
    AutoModelForSeq2SeqLM: "SEQ_TO_SEQ_CAUSAL_LM",
    AutoModelForMaskedLM: "MASKED_LM",
    AutoModelForCausalLM: "CAUSAL_LM",
    AutoModelForImageTextToText: "IMAGE_TEXT_TO_TEXT",
}
TASKS = (*LANGUAGE_MODELS.values(), "PRETRAINING")
PREDICTS = re.compile(r"LMHead|For(CausalLM|MaskedLM|ConditionalGeneration|PreTraining)$")
NOT_NEEDED = (  # unexpected weights on which nothing shown depends
    r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$",  # computed from the configuration
    r"\.(attn|attention|self|self_attn)\.(bias|masked_bias)$",  # the causal mask, stored
    r"(position_ids|token_type_ids)$",  # counted anew for each text
    r"num_batches_tracked$",  # of training
    r"(^|\.)pooler\.",  # makes one vector of a whole text, after all attention
    r"(^|\.)(mtp|nextn)\b",  # predicts tokens further ahead, after all attention
    r"(^|\.)((pre_|sop_)?classifier|classification_head|score|qa_outputs|seq_relationship|discriminator_predictions"
    r"|sequence_summary|logits_proj)\.",  # the head of another task
)


@dataclass(frozen=True)
class OutputHead:
    """What a checkpoint holds. predicts: whether it has a language-model head. adapted: whether an adapter was merged
    into the network. stored: the type of the weights in the file, as safetensors writes it. hardware: that computes it.
    """

    predicts: bool
    adapted: bool = False
    stored: str = "F32"
    hardware: Hardware = CPU


def class_for(config: PreTrainedConfig) -> Any:
    """The auto class that gives the language model of a configuration. Raises NotSupported where there is none."""
    tasks = {auto: classes_of_task(task) for auto, task in LANGUAGE_MODELS.items()}
    known = [auto for auto, classes in tasks.items() if config.model_type in classes]
    saved_as = set(config.architectures or ())
    for auto in known:
        if saved_as & _names(tasks[auto][config.model_type]):
            return auto
    if config.is_encoder_decoder:  # never its decoder alone
        known = [auto for auto in known if auto in (AutoModelForSeq2SeqLM, AutoModelForImageTextToText)]
        if not known:
            raise NotSupported(msg("it is an encoder-decoder whose source is not text (speech, for example)"))
    elif getattr(config, "is_decoder", False):
        known = [auto for auto in known if auto is not AutoModelForMaskedLM]
    if known:
        return known[0]
    for name in config.architectures or ():  # what it was saved from may be the text part of a larger one
        found = getattr(transformers, name, None)
        if name.endswith("ForCausalLM") and found is not None and found.config_class is type(config):
            return found
    raise NotSupported(msg("transformers has no language model of this kind"))


def needed(keys: Iterable[str]) -> list[str]:
    """Those of these weights on which something shown depends."""
    return sorted(key for key in keys if not any(re.search(known, key) for known in NOT_NEEDED))


def check_report(name: str, network: PreTrainedModel, report: dict[str, Any]) -> OutputHead:
    """The head that the files hold. Raises CheckpointError for missing weights and for unexpected ones."""
    lost = sorted(key for key in report["missing_keys"] if key.startswith(stack_names(network)))
    if lost:
        raise CheckpointError(msg(MISSING_WEIGHTS, model=name, count=len(lost), first=lost[0]))
    if over := needed(report["unexpected_keys"]):
        listed = ", ".join(over[:2])
        if len(over) > 2:
            listed = msg("{listed} and {count} more", listed=listed, count=len(over) - 2)
        raise CheckpointError(msg(UNEXPECTED_WEIGHTS, model=name, listed=listed))
    saved_as = next(iter(network.config.architectures or ()), None)
    return OutputHead(not report["missing_keys"] and (saved_as is None or is_language_model(saved_as)))


def head_of(name: str, network: PreTrainedModel) -> OutputHead:
    """The head of a network in memory. Raises NotSupported for one without."""
    architecture = type(network).__name__
    if not is_language_model(architecture):
        raise NotSupported(msg(NO_LANGUAGE_MODEL, model=name, architecture=architecture))
    weight = next(network.parameters())
    return OutputHead(True, hardware=Hardware(str(weight.device), weight.dtype))


def is_language_model(architecture: str) -> bool:
    if PREDICTS.search(architecture):
        return True
    return any(architecture in _names(names) for task in TASKS for names in classes_of_task(task).values())


def _names(classes: str | Collection[str]) -> set[str]:
    return {classes} if isinstance(classes, str) else set(classes)
