"""The undocumented parts of transformers and tokenizers that Unmask uses. No other file may use one.

Each is checked by tests/model/huggingface/test_huggingface_internals.py, which `make upgrade-check` runs with the
newest transformers. Checked with transformers 5.23.0. Importing this file imports nothing of transformers.
"""

import inspect
import sys
from collections.abc import Collection, Mapping
from types import FunctionType
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram
from torch import nn

# Relies on: the `desc` of the progress bar over a checkpoint's tensors (core_model_loading.py); the hook that gets it,
# transformers.utils.logging.set_tqdm_hook, is public.
WEIGHTS_BAR = "Loading weights"  # not shown

# Relies on: the undocumented keyword arguments that networks pass to an attention function.
APPLIED_KEYWORDS = {"softcap", "position_bias", "s_aux", "sinks", "indices"}
IGNORED_KEYWORDS = (  # they do not change the result
    {"is_causal", "sliding_window"}  # already in the mask
    | {"position_ids", "position_embeddings", "hidden_states"}  # already applied to q and k, or in a bias
    | {"cache_position", "past_key_values", "use_cache"}  # no cache is used
    | {"output_attentions", "output_hidden_states", "output_router_logits", "return_dict"}  # additional return values
    | {"deterministic", "logits_to_keep"}  # the choice of a kernel; the positions that the output head computes
)
KNOWN_KEYWORDS = APPLIED_KEYWORDS | IGNORED_KEYWORDS


def attention_name(config: Any) -> str | None:
    """Return the attention implementation that a configuration selects; None for a configuration without one.

    Relies on: `PreTrainedConfig._attn_implementation`.
    """
    return getattr(config, "_attn_implementation", None)


def set_attention_name(network: nn.Module, name: str, shown: Collection[nn.Module]) -> None:
    """Write the name of an attention implementation into the configurations of `shown`, the stacks of a network, and of
    the modules that contain them; write "eager" into all others, such as towers for images or sound.

    For networks that `set_attn_implementation` refuses because they compute attention themselves: they too look up
    their mask function by the name in their configuration. Relies on: `PreTrainedConfig._attn_implementation_internal`,
    which is set without visiting sub-configurations.
    """
    from transformers import PreTrainedConfig

    named = {f"network.{path}".rstrip("."): module for path, module in network.named_modules()}
    paths = [f"{path}." for path, module in named.items() if module in shown]
    for which in ("eager", name):  # a tower and a stack may share a configuration
        for path, module in named.items():
            config, here = getattr(module, "config", None), f"{path}."
            theirs = any(stack.startswith(here) or here.startswith(stack) for stack in paths)
            if isinstance(config, PreTrainedConfig) and (which == "eager" or theirs):
                config._attn_implementation_internal = which


def selectable_only_at_loading(network: Any, name: str) -> bool:
    """Whether a network could have been loaded with this attention implementation, but can no longer be switched to it.

    Relies on: `PreTrainedModel._can_set_attn_implementation` and `_check_and_adjust_attn_implementation`.
    """
    if getattr(network, "_can_set_attn_implementation", lambda: True)():
        return False
    try:
        network._check_and_adjust_attn_implementation(name, is_init_check=True)
    except (ValueError, ImportError, TypeError, KeyError, AttributeError):
        return False
    return True


def add_alibi_once(network: nn.Module) -> None:
    """Make Falcon's eager attention compute what its SDPA attention does: transformers puts ALiBi into the mask of
    both, and the eager attention also adds it to its scores. That second addition gets zeros.

    Relies on: the argument `alibi` of FalconAttention, None without ALiBi.
    """

    def zeros(_: nn.Module, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        alibi = options["alibi"]
        return arguments, options | {"alibi": None if alibi is None else alibi.new_zeros(alibi.shape)}

    for module in network.modules():
        if type(module).__name__ == "FalconAttention":
            module.register_forward_pre_hook(zeros, with_kwargs=True)


def classes_of_task(task: str) -> Mapping[str, Any]:
    """Map model types to the name, or names, of their class for a task, without importing any of these classes.

    task: as in transformers' constants, for example "CAUSAL_LM". Relies on:
    `transformers.models.auto.modeling_auto.MODEL_FOR_…_MAPPING_NAMES`.
    """
    from transformers.models.auto import modeling_auto

    names: Mapping[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
    return names


def runs_with_static_cache(network: nn.Module) -> bool:
    """Whether transformers offers a static cache for a network.

    Relies on: the class attribute `PreTrainedModel._can_compile_fullgraph`.
    """
    return getattr(network, "_can_compile_fullgraph", False)


def disable_word_cache(tokenizer: Tokenizer) -> None:
    """Disable the cache of words: tokenizers 0.23 does not free it with the tokenizer, two megabytes each."""
    if isinstance(tokenizer.model, BPE | Unigram):
        tokenizer.model._resize_cache(0)


def images_only(processor: type) -> type:
    """Derive a processor class without its video part, which needs torchvision and, for SmolVLM, num2words.

    Relies on: `ProcessorMixin.get_attributes`, the names of the parts; `video_processor`, the name of the video part;
    `num2words` in SmolVLM's module, which is called only for videos.
    """
    attributes = processor.get_attributes()  # type: ignore[attr-defined]
    module = sys.modules[processor.__module__]
    module.num2words = getattr(module, "num2words", None) or str  # type: ignore[attr-defined]

    shown = [name for name in attributes if name != "video_processor"]
    own: dict[str, Any] = {"get_attributes": classmethod(lambda _: shown)}
    made = processor.__init__  # type: ignore[misc]
    video = inspect.signature(made).parameters.get("video_processor")
    if video is not None and video.default is video.empty:  # SmolVLM's: the last parameter without a default
        optional = (None, *made.__defaults__)
        own["__init__"] = FunctionType(made.__code__, made.__globals__, "__init__", optional, made.__closure__)
    return type(processor.__name__, (processor,), own)


def processor_of(config: Any) -> type | None:
    """Return the processor class for a configuration, adapted to work without torchvision; None if there is none.

    Relies on: `PROCESSOR_MAPPING`; Pixtral's module, which needs torchvision for a function that its Pillow twin has.
    """
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
    from transformers.models.pixtral import image_processing_pil_pixtral

    if type(config) not in PROCESSOR_MAPPING:
        return None
    module = "transformers.models.pixtral.image_processing_pixtral"
    missing = module not in sys.modules
    sys.modules.setdefault(module, image_processing_pil_pixtral)
    try:
        from transformers.models.pixtral.processing_pixtral import PixtralProcessor

        found: Any = PROCESSOR_MAPPING[type(config)]
        return images_only(PixtralProcessor if found.__name__ == PixtralProcessor.__name__ else found)
    finally:
        if missing:
            del sys.modules[module]
