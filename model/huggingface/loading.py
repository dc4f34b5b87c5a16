"""Loads a network and its tokenizers from a folder that was checked: safetensors alone, no code of the repository."""

import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, GgufConfig, PreTrainedModel, modeling_gguf_pytorch_utils
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from i18n import N_, msg, msg_all
from model import hardware
from model.base import check_finite
from model.errors import CheckpointError, NotSupported, Stopped, first_line, panics_caught
from model.hardware import Hardware
from model.huggingface import checkpoint_files, formats, internals
from model.huggingface import weights as lora
from model.huggingface.sentencepieces import read_lone, read_marian
from model.huggingface.stacks import vocabulary_of
from model.huggingface.verify import refusal
from model.huggingface.weights import OutputHead, check_report, class_for
from model.text import BatchTokenizer, added_around
from serving.settings import Settings

MOST_SHARING = 4096  # numbers of 4 bits that have one scale
SAFE: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}

Report = Callable[[str], None]  # called with what is being done; what it raises stops it
_REPORT: ContextVar[Report | None] = ContextVar("_REPORT", default=None)  # of the load in this thread
UNREADABLE = N_("{model}: its tokenizer cannot be read ({why}). Its {files} must be complete.")
OTHER_VOCABULARY = N_(
    "{model}: its tokenizer has ids up to {highest} and its weights know {known} entries. They do not belong to the "
    "same model: fetch both again."
)


def _counted(make: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Replaces transformers' progress bar over weights by reports."""
    if _REPORT.get() is None or options.get("desc") != internals.WEIGHTS_BAR:
        return make(*arguments, **options)
    return _reported(list(arguments[0]))


def _reported(items: list[Any], desc: str = "") -> Iterator[Any]:
    report = _REPORT.get() or (lambda words: None)
    for place, item in enumerate(items, 1):
        report(msg("tensor {place} of {all}", place=place, all=len(items)))
        yield item


modeling_gguf_pytorch_utils.tqdm = _reported  # the bar over a GGUF file's tensors
logging.disable_progress_bar()
logging.set_tqdm_hook(_counted)


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a network. targets: of an encoder-decoder, else None. ends: the ids that end a generated text.
    never_written: ids that are never generated, padding for example.
    """

    texts: BatchTokenizer
    targets: BatchTokenizer | None
    ends: frozenset[int]
    never_written: list[int]


def gguf_option(name: str, folder: Path) -> dict[str, str]:
    """transformers' option for a GGUF file, none for other weights."""
    file = formats.gguf_file(name, checkpoint_files.local_files(folder))
    return {"gguf_file": file} if file else {}


def read_network(
    name: str, folder: Path, settings: Settings, report: Report = lambda _: None
) -> tuple[PreTrainedModel, OutputHead]:
    """The network in folder with eager attention on the device that was chosen, ready to run, and what the folder holds
    of its head.

    Raises CheckpointError for weights that do not fit.
    """
    files = checkpoint_files.local_files(folder)
    size = sum(files[file] for file in checkpoint_files.weight_files(name, files))
    stored = checkpoint_files.stored_type(name, folder)
    where = hardware.chosen(settings, stored, checkpoint_files.numbers_in(name, folder))
    words = N_("reading {size:,.0f} MB of weights, {words}")
    token = _REPORT.set(lambda some: report(msg(words, size=size / 1e6, words=some)))
    try:
        mapped = {"device_map": where.device_map} if where.device_map else {}
        network, found = from_pretrained(name, folder, where.dtype, attn_implementation="eager", **mapped)
    finally:
        _REPORT.reset(token)
    head = check_report(name, network, found)
    adapted = lora.merge(name, network, folder)
    check_finite(name, network)
    try:
        network = network if mapped else network.to(where.device)
    except torch.OutOfMemoryError:  # the device has no room for it after all
        torch.cuda.empty_cache()
        dtype = hardware.held_in(stored, "cpu", settings.precision)
        why = msg("{device} has too little memory for it, so it is computed on the CPU", device=where.device)
        network, where = network.to("cpu", dtype), Hardware("cpu", dtype, fallback=why)
    return network, replace(head, adapted=adapted, stored=stored, hardware=where)


def from_pretrained(
    name: str, folder: Path, dtype: torch.dtype, auto: Any = None, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """The network in a folder, in eval mode, and transformers' report on its weights; an adapter is not merged.

    auto: transformers' class that makes it, the one of a language model unless given.
    Reads only safetensors and runs no code of the repository. Raises NotSupported for no language model,
    CheckpointError for damaged files.
    """
    try:
        gguf = gguf_option(name, folder)
        config = AutoConfig.from_pretrained(folder, **gguf, **SAFE)
        if gguf:  # with blocks left as they are, it would fetch code for them from the Hub
            options["quantization_config"] = GgufConfig(dequantize=True)
        packed = formats.bitsandbytes_type(config.to_dict())
        if packed:  # else it would be read into a GPU's memory, whatever was chosen
            options.setdefault("device_map", "cpu")
        network, found = (auto or class_for(config)).from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            **gguf,
            output_loading_info=True,
            variant=formats.variant(checkpoint_files.local_files(folder)),
            adapter_kwargs=lora.UNSEEN,
            **SAFE,
            **options,
        )
        if packed:
            network = dequantized(network, dtype)
    except NotSupported as error:
        raise refusal(name, config.model_type, error) from None
    except Stopped:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged file raises whatever its reader happens to raise
        words = N_("{model}: the weights do not fit the configuration ({why}). Fetch its files again.")
        raise CheckpointError(msg(words, model=name, why=first_line(error))) from None
    return network.eval().requires_grad_(False), found


def dequantized(network: Any, dtype: torch.dtype) -> Any:
    """A network that bitsandbytes packed, with plain weights. Raises an error for parts that do not fit each other."""
    turned = []
    for name, module in network.named_modules():
        if (state := getattr(getattr(module, "weight", None), "quant_state", None)) is not None:
            shape = module.out_features, module.in_features
            module.weight = nn.Parameter(_of_four_bits(module.weight, state, shape), requires_grad=False)
        turned += [name] if getattr(module, "source_cls", None) is Conv1D else []
    network = network.dequantize(dtype)
    for name in turned:  # GPT-2's: transformers makes linear layers of them, whose weights are the other way round
        linear = network.get_submodule(name)
        made = Conv1D(linear.out_features, linear.in_features)
        made.weight, made.bias = nn.Parameter(linear.weight.detach().T.contiguous()), linear.bias
        network.set_submodule(name, made)
    for weight in network.parameters():  # transformers leaves those that were not packed in float32
        weight.data = weight.data.to(dtype)
    return network


def _of_four_bits(weight: Tensor, state: Any, shape: tuple[int, int]) -> Tensor:
    """Not by bitsandbytes' kernels: they read beyond the parts of a damaged file, and the CPU's are wrong where a row
    is no whole number of blocks."""
    if tuple(state.shape) != shape:
        words = N_("expected a packed weight of {shape}, got {got}")
        raise ValueError(msg(words, shape=list(shape), got=list(state.shape)))
    packed, scales, nested = weight.data.view(torch.uint8).flatten(), state.absmax, state.state2
    if nested is not None:
        scales = _scaled(nested.code, scales, nested.absmax, nested.blocksize) + state.offset
    numbers = torch.stack([packed >> 4, packed & 15], 1).flatten()[: prod(shape)]
    return _scaled(state.code, numbers, scales, state.blocksize).view(shape)


def _scaled(table: Tensor, numbers: Tensor, scales: Tensor, size: int) -> Tensor:
    """What the table has for each number, times the scale of its block of this size."""
    if not 1 < size <= MOST_SHARING:
        raise ValueError(msg("expected a scale for 2 to {most} numbers, got {got}", most=MOST_SHARING, got=size))
    blocks = -(-len(numbers) // size)
    return table.float()[numbers.int()] * scales[:blocks].float().repeat_interleave(size)[: len(numbers)]


def read_tokenizers(name: str, folder: Path, model_type: str) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of the texts and of an encoder-decoder's targets, which differ for Marian alone.

    Raises CheckpointError for none, or a damaged or empty one.
    """
    folder = checkpoint_files.tokenizer_folder(name, folder)
    files = checkpoint_files.tokenizer_files(name, checkpoint_files.local_files(folder))
    try:
        with panics_caught():
            tokenizers = _read(name, folder, files, model_type)
            for tokenizer in tokenizers:
                tokenizer.encode("a")
    except CheckpointError:
        raise
    except Exception as error:  # noqa: BLE001 - the libraries raise plain Exception
        raise CheckpointError(msg(UNREADABLE, model=name, why=first_line(error), files=msg_all(files))) from None
    if min(tokenizer.get_vocab_size() for tokenizer in tokenizers) < 2:
        words = N_("{model} has no tokenizer that knows any token. Save its tokenizer beside its weights.")
        raise CheckpointError(msg(words, model=name))
    return tokenizers


def check_vocabulary(name: str, network: PreTrainedModel, tokenizer: Tokenizer) -> None:
    """Raises CheckpointError when the tokenizer has ids that the network does not know."""
    highest, known = max(tokenizer.get_vocab().values()), vocabulary_of(network)
    if highest >= known:
        raise CheckpointError(msg(OTHER_VOCABULARY, model=name, highest=highest, known=known))


def tokens_of(network: PreTrainedModel, tokenizers: tuple[Tokenizer, Tokenizer], context: int) -> Tokenizers:
    """The tokenizers of a network's texts and targets, with the tokens that they add around each."""
    config, (tokenizer, of_targets) = network.config, tokenizers
    configs = [getattr(network, "generation_config", None), config]  # the more specific first
    start, end = added_around(tokenizer)
    ended = [getattr(said, "eos_token_id", None) for said in configs]
    ends = frozenset(chain.from_iterable([ids] if isinstance(ids, int) else ids or () for ids in ended))
    # the padding id: the model's own, or the tokenizer's, or else the end token
    named = [tokenizer.token_to_id(token) for token in ("<pad>", "[PAD]", "<|pad|>")]
    usable = (getattr(config, "pad_token_id", None), *named, *sorted(ends))
    known = vocabulary_of(network)
    pad = next((token for token in usable if token is not None and 0 <= token < known), 0)
    texts = BatchTokenizer(tokenizer, context, pad=pad, start=start, end=end)
    if not config.is_encoder_decoder:
        return Tokenizers(texts, None, ends, [])
    starts = [getattr(said, "decoder_start_token_id", None) for said in configs]
    first = next((int(token) for token in starts if token is not None), pad)
    targets = BatchTokenizer(of_targets, context, pad=pad, start=[first, *added_around(of_targets)[0]])
    return Tokenizers(texts, targets, ends, sorted({pad, first} - ends))


def _read(name: str, folder: Path, files: tuple[str, ...], model_type: str) -> tuple[Tokenizer, Tokenizer]:
    if files == checkpoint_files.MARIAN:
        return read_marian(name, folder)
    if files[0] in checkpoint_files.LONE:
        tokenizer = read_lone(name, folder / files[0], model_type)
    elif files == ("tokenizer.json",):  # as it is: transformers rebuilds some families', and the rest gets lost
        tokenizer = Tokenizer.from_file(str(folder / files[0]))
    else:
        gguf = {"gguf_file": files[0]} if files[0].endswith(".gguf") else {}
        built = AutoTokenizer.from_pretrained(folder, **gguf, **SAFE).backend_tokenizer.to_str()
        if gguf:  # its class adds tokens to the file's vocabulary
            parts = json.loads(built)
            known = len(parts["model"]["vocab"])
            built = json.dumps(parts | {"added_tokens": [one for one in parts["added_tokens"] if one["id"] < known]})
        tokenizer = Tokenizer.from_str(built)  # a copy of our own
    return tokenizer, tokenizer
