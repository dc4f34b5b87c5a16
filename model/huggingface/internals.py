"""The parts of transformers and tokenizers used here that are not documented. No other file may use one.

Each is checked by tests/model/huggingface/test_huggingface_internals.py, which `make upgrade-check` runs with the
newest transformers. Checked with transformers 5.23.0. Importing this file imports nothing of transformers.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram
from torch import nn

# Relies on: the `desc` of the progress bar over a checkpoint's tensors (core_model_loading.py); the hook that sees it,
# transformers.utils.logging.set_tqdm_hook, is public.
WEIGHTS_BAR = "Loading weights"  # not shown

# Relies on: the keyword arguments that networks pass to an attention function beside the documented ones.
APPLIED_KEYWORDS = {"softcap", "position_bias", "s_aux", "sinks", "indices"}
IGNORED_KEYWORDS = (  # they do not change what is computed
    {"is_causal", "sliding_window"}  # the mask has them
    | {"position_ids", "position_embeddings", "hidden_states"}  # applied to q and k, or in a bias, already
    | {"cache_position", "past_key_values", "use_cache"}  # there is no cache
    | {"output_attentions", "output_hidden_states", "output_router_logits", "return_dict"}  # what is returned besides
    | {"deterministic", "logits_to_keep"}  # the choice of a kernel; what the head computes
)
KNOWN_KEYWORDS = APPLIED_KEYWORDS | IGNORED_KEYWORDS


def attention_name(config: Any) -> str | None:
    """The attention implementation that a configuration selects; None for a configuration without one.

    Relies on: `PreTrainedConfig._attn_implementation`.
    """
    return getattr(config, "_attn_implementation", None)


def set_attention_name(network: nn.Module, name: str) -> None:
    """Write the name of an attention implementation into the configuration of every module of a network.

    For networks that `set_attn_implementation` refuses, because they compute attention themselves: they too look up
    their mask function by the name in their configuration.
    Relies on: `PreTrainedConfig._attn_implementation_internal`, which is set without visiting sub-configurations.
    """
    from transformers import PreTrainedConfig

    for module in network.modules():
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig):
            config._attn_implementation_internal = name


def classes_of_task(task: str) -> Mapping[str, Any]:
    """Model type -> the name of its class for a task, or several: without importing any of these classes.

    task: as in transformers' constants, "CAUSAL_LM" for example.
    Relies on: `transformers.models.auto.modeling_auto.MODEL_FOR_…_MAPPING_NAMES`.
    """
    from transformers.models.auto import modeling_auto

    names: Mapping[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
    return names


def runs_with_static_cache(network: nn.Module) -> bool:
    """Whether transformers offers a static cache for a network.

    Relies on: the class attribute `PreTrainedModel._can_compile_fullgraph`.
    """
    return getattr(network, "_can_compile_fullgraph", False)


def remember_no_words(tokenizer: Tokenizer) -> None:
    """Encode without a cache of words: tokenizers 0.23 does not free it with the tokenizer, two megabytes each."""
    if isinstance(tokenizer.model, BPE | Unigram):
        tokenizer.model._resize_cache(0)
