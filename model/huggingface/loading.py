"""Loading of a network from a folder that checkpoint_files.py has checked: safetensors or GGUF, no repository code.

Checks that every weight in the files belongs to the network, and merges a LoRA adapter. described.py chooses the class
beforehand; verify.py runs the network afterwards.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import GgufConfig, PreTrainedModel, modeling_gguf_pytorch_utils
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from i18n import N_, msg
from model import hardware
from model.base import check_finite
from model.errors import CheckpointError, NotSupported, Stopped, first_line
from model.hardware import CPU, Hardware
from model.huggingface import checkpoint_files, formats, internals
from model.huggingface.described import SAFE, check_described, class_for, configuration, gguf_option, is_language_model
from model.huggingface.stacks import stack_names
from model.huggingface.verify import refusal
from serving.settings import Settings

MAX_SHARING = 4096  # most 4-bit numbers that share a scale
BEFORE, LORA_A, LORA_B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"  # prefix and suffixes of tensor names
NO_ADAPTER = {"subfolder": "no adapter"}  # not shown; adapter_kwargs: if peft is installed, transformers adds adapters
NOT_PLAIN = re.compile(
    "use_dora|rank_pattern|alpha_pattern|modules_to_save|layer_replication|trainable_token_indices"
    "|alora_invocation_tokens|arrow_config"
)
KEEP_BASE = ("gaussian", "orthogonal", "eva")  # init_lora_weights for which peft leaves the base's weights unchanged
CANNOT_MERGE = N_(
    "{model} contains an adapter beside its base that Unmask cannot merge ({what}). Merge the two (peft's "
    "merge_and_unload), save the result, and choose that."
)
OTHER_SHAPE = N_(
    "{model}: the weights do not fit the configuration: {tensor} has the shape {stored} in the files, and {expected} "
    "by config.json. Correct config.json, or fetch its files again."
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
NOT_NEEDED = (  # unexpected weights that do not affect anything shown
    r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$",  # computed from the configuration
    r"\.(attn|attention|self|self_attn)\.(bias|masked_bias)$",  # a stored causal mask
    r"(position_ids|token_type_ids)$",  # recomputed for each text
    r"num_batches_tracked$",  # a training counter
    r"(^|\.)pooler\.",  # pools a whole text into one vector, after all attention
    r"(^|\.)(mtp|nextn)\b",  # predicts tokens further ahead, after all attention
    r"(^|\.)((pre_|sop_)?classifier|classification_head|score|qa_outputs|seq_relationship|discriminator_predictions"
    r"|sequence_summary|logits_proj)\.",  # the head of another task
)

Report = Callable[[str], None]  # called with a description of the current step; an exception stops loading
_REPORT: ContextVar[Report | None] = ContextVar("_REPORT", default=None)  # for the load in this thread


def _counted(make: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Replace transformers' progress bar over weights by reports."""
    if _REPORT.get() is None or options.get("desc") != internals.WEIGHTS_BAR:
        return make(*arguments, **options)
    return _reported(list(arguments[0]))


def _reported(items: list[Any], desc: str = "") -> Iterator[Any]:
    """Report each item, in place of tqdm. desc: tqdm's, unused."""
    report = _REPORT.get() or (lambda words: None)
    for index, item in enumerate(items, 1):
        report(msg("tensor {place} of {all}", place=index, all=len(items)))
        yield item


modeling_gguf_pytorch_utils.tqdm = _reported  # the bar over a GGUF file's tensors
logging.disable_progress_bar()
logging.set_tqdm_hook(_counted)


@dataclass(frozen=True)
class OutputHead:
    """The contents of a checkpoint. predicts: whether it has a language-model head. adapted: whether an adapter was
    merged into the network. stored: the type of the weights in the file, in safetensors' notation; "" in memory.
    hardware: the hardware that computes it.
    """

    predicts: bool
    adapted: bool = False
    stored: str = ""
    hardware: Hardware = CPU


def read_network(name: str, folder: Path, settings: Settings, report: Report) -> tuple[PreTrainedModel, OutputHead]:
    """Load the network in a folder, with eager attention, to the chosen device, and return it with what the folder
    contains of its head.

    Raises CheckpointError for weights that do not fit.
    """
    files = checkpoint_files.local_files(folder)
    size = sum(files[file] for file in checkpoint_files.weight_files(name, files))
    stored = checkpoint_files.stored_type(name, folder)
    where = hardware.choose_hardware(settings, stored, checkpoint_files.count_weights(name, folder))
    template = N_("reading {size:,.0f} MB of weights, {words}")
    token = _REPORT.set(lambda some: report(msg(template, size=size / 1e6, words=some)))
    try:
        mapped = {"device_map": where.device_map} if where.device_map else {}
        network, found = from_pretrained(name, folder, where.dtype, settings, attn_implementation="eager", **mapped)
    finally:
        _REPORT.reset(token)
    head = check_report(name, network, found)
    adapted = merge_adapter(name, network, folder)
    check_finite(name, network)
    if where.device.startswith("cuda"):  # else convolutions over images round to 10 bits
        torch.backends.cudnn.allow_tf32 = False
    try:
        network = network if mapped else network.to(where.device)
    except torch.OutOfMemoryError:  # too little memory despite the estimate
        torch.cuda.empty_cache()
        dtype = hardware.dtype_in_memory(stored, "cpu", settings.precision)
        why = msg("{device} has too little memory for it, so it is computed on the CPU", device=where.device)
        network, where = network.to("cpu", dtype), Hardware("cpu", dtype, fallback=why)
    return network, replace(head, adapted=adapted, stored=stored, hardware=where)


def from_pretrained(
    name: str, folder: Path, dtype: torch.dtype, settings: Settings, auto: Any = None, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """Load the network in a folder in eval mode, without an adapter, and return it with transformers' report on its
    weights.

    auto: transformers' class that makes it, the one of a language model by default. Reads only safetensors and runs no
    code of the repository. Raises NotSupported if it is no language model, TooLarge for too much memory,
    CheckpointError for damaged files.
    """
    config = configuration(name, folder)
    try:
        check_described(name, config, dtype, settings, auto)
        gguf = gguf_option(name, folder)
        if gguf:  # without dequantizing, transformers would fetch kernels from the Hub
            options["quantization_config"] = GgufConfig(dequantize=True)
        packed = formats.bitsandbytes_type(config.to_dict())
        if packed:  # else it would be loaded to a GPU, whatever was chosen
            options.setdefault("device_map", "cpu")
        network, found = (auto or class_for(config)).from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            **gguf,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below; transformers' error refers to a report in its log
            variant=formats.variant(checkpoint_files.local_files(folder)),
            adapter_kwargs=NO_ADAPTER,
            **SAFE,
            **options,
        )
        if packed:
            network = dequantized(network, dtype)
    except NotSupported as error:
        raise refusal(name, config.model_type, error) from None
    except (CheckpointError, Stopped):
        raise
    except Exception as error:  # noqa: BLE001 - a damaged file may make its reader raise anything
        template = N_("{model}: the weights do not fit the configuration ({why}). Fetch its files again.")
        why = f"{type(error).__name__}: {first_line(error)}"  # a KeyError's message is its key alone
        raise CheckpointError(msg(template, model=name, why=why)) from None
    for tensor, stored, expected in sorted(found["mismatched_keys"]):
        shapes = {"stored": list(stored), "expected": list(expected)}
        raise CheckpointError(msg(OTHER_SHAPE, model=name, tensor=tensor, **shapes))
    return network.eval().requires_grad_(False), found


def dequantized(network: Any, dtype: torch.dtype) -> Any:
    """Dequantize a network that bitsandbytes packed. Raises an exception for parts that do not fit each other."""
    turned = []
    for name, module in network.named_modules():
        if (state := getattr(getattr(module, "weight", None), "quant_state", None)) is not None:
            shape = module.out_features, module.in_features
            module.weight = nn.Parameter(_unpack_4bit(module.weight, state, shape), requires_grad=False)
        turned += [name] if getattr(module, "source_cls", None) is Conv1D else []
    network = network.dequantize(dtype)
    for name in turned:  # GPT-2's Conv1D: transformers replaced it by Linear, whose weight is transposed
        linear = network.get_submodule(name)
        made = Conv1D(linear.out_features, linear.in_features)
        made.weight, made.bias = nn.Parameter(linear.weight.detach().T.contiguous()), linear.bias
        network.set_submodule(name, made)
    for weight in network.parameters():  # transformers leaves weights that were not packed in float32
        weight.data = weight.data.to(dtype)
    return network


def _unpack_4bit(weight: Tensor, state: Any, shape: tuple[int, int]) -> Tensor:
    """Unpack a 4-bit weight. bitsandbytes' kernels are not used: they read beyond the end of damaged data, and those
    for the CPU are wrong where a row is not a whole number of blocks."""
    if tuple(state.shape) != shape:
        template = N_("expected a packed weight of {shape}, got {got}")
        raise ValueError(msg(template, shape=list(shape), got=list(state.shape)))
    packed, scales, nested = weight.data.view(torch.uint8).flatten(), state.absmax, state.state2
    if nested is not None:
        scales = _scaled(nested.code, scales, nested.absmax, nested.blocksize) + state.offset
    numbers = torch.stack([packed >> 4, packed & 15], 1).flatten()[: prod(shape)]
    return _scaled(state.code, numbers, scales, state.blocksize).view(shape)


def _scaled(table: Tensor, numbers: Tensor, scales: Tensor, size: int) -> Tensor:
    """Look up each number in the table and multiply it by the scale of its block of `size` numbers."""
    if not 1 < size <= MAX_SHARING:
        raise ValueError(msg("expected a scale for 2 to {most} numbers, got {got}", most=MAX_SHARING, got=size))
    blocks = -(-len(numbers) // size)
    return table.float()[numbers.int()] * scales[:blocks].float().repeat_interleave(size)[: len(numbers)]


@torch.inference_mode()
def merge_adapter(name: str, network: PreTrainedModel, folder: Path) -> bool:
    """Add the adapter in a folder to the network's weights; return False if there is none.

    Raises CheckpointError if it is not a plain LoRA or does not fit the network.
    """
    files = checkpoint_files.local_files(folder)
    if not formats.has_adapter_and_base(files):
        return False
    config = checkpoint_files.read_json(name, folder / formats.ADAPTER)
    try:
        scale = _lora_scale(config)
        tensors = load_file(folder / formats.ADAPTER_WEIGHTS)
        targets = {key.removesuffix(LORA_A) for key in tensors if key.endswith(LORA_A)}
        if not targets or set(tensors) != {target + end for target in targets for end in (LORA_A, LORA_B)}:
            raise ValueError(msg("weights other than pairs of lora_A and lora_B"))
        for target in sorted(targets):
            _add_lora(network, target, tensors[target + LORA_B].float() * scale, tensors[target + LORA_A].float())
    except ValueError as error:
        raise CheckpointError(msg(CANNOT_MERGE, model=name, what=str(error))) from None
    except (SafetensorError, OSError) as error:
        template = N_("{model}: its adapter's weights cannot be read ({why}). Fetch them again.")
        raise CheckpointError(msg(template, model=name, why=error)) from None
    return True


def _lora_scale(config: dict[str, Any]) -> float:
    kind = str(config.get("peft_type", "LORA"))
    if kind != "LORA":
        raise ValueError(msg("the kind {kind}", kind=kind[:40]))
    used = [field for field, value in config.items() if value and NOT_PLAIN.fullmatch(field)]
    if config.get("bias", "none") != "none" or config.get("lora_bias"):
        used.append("bias")
    init = config.get("init_lora_weights")
    if isinstance(init, str) and init.lower() not in KEEP_BASE:
        used.append("init_lora_weights")
    if used:
        raise ValueError(", ".join(used))
    alpha, rank = config.get("lora_alpha"), config.get("r")
    if not isinstance(alpha, int | float) or not isinstance(rank, int) or rank < 1:
        raise ValueError(msg("no rank and alpha"))
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _add_lora(network: PreTrainedModel, target: str, b: Tensor, a: Tensor) -> None:
    """Add b·a to a target's weight: b [out,rank], a [rank,in]."""
    try:
        module = network.get_submodule(target.removeprefix(BEFORE))
    except AttributeError:
        raise ValueError(msg("weights for {target}, which its network does not have", target=target[:80])) from None
    if not isinstance(module, nn.Linear | Conv1D) or module is network.get_output_embeddings():
        raise ValueError(msg("weights for {target} ({kind})", target=target[:80], kind=type(module).__name__))
    left, right = (a.T, b.T) if isinstance(module, Conv1D) else (b, a)  # Conv1D's weight is [in,out]
    shape = [*left.shape[:1], *right.shape[1:]]
    if shape != list(module.weight.shape):  # before multiplying: small factors may make a huge product
        shapes = {"shape": shape, "own": list(module.weight.shape)}
        raise ValueError(msg("weights of {shape} for {target}, which has {own}", target=target[:80], **shapes))
    module.weight += (left @ right).to(module.weight)


def needed_weights(keys: Iterable[str]) -> list[str]:
    """Return the names of the weights that affect something shown."""
    return sorted(key for key in keys if not any(re.search(known, key) for known in NOT_NEEDED))


def check_report(name: str, network: PreTrainedModel, report: dict[str, Any]) -> OutputHead:
    """Return the head that the files contain. Raises CheckpointError for missing weights and for unexpected ones."""
    lost = sorted(key for key in report["missing_keys"] if key.startswith(stack_names(network)))
    if lost:
        raise CheckpointError(msg(MISSING_WEIGHTS, model=name, count=len(lost), first=lost[0]))
    if over := needed_weights(report["unexpected_keys"]):
        listed = ", ".join(over[:2])
        if len(over) > 2:
            listed = msg("{listed} and {count} more", listed=listed, count=len(over) - 2)
        raise CheckpointError(msg(UNEXPECTED_WEIGHTS, model=name, listed=listed))
    saved_as = next(iter(network.config.architectures or ()), None)
    return OutputHead(not report["missing_keys"] and (saved_as is None or is_language_model(saved_as)))


def head_of(name: str, network: PreTrainedModel) -> OutputHead:
    """Return the head of a network in memory. Raises NotSupported if it has none."""
    architecture = type(network).__name__
    if not is_language_model(architecture):
        raise NotSupported(msg(NO_LANGUAGE_MODEL, model=name, architecture=architecture))
    weight = next(network.parameters())
    return OutputHead(True, hardware=Hardware(str(weight.device), weight.dtype))
