"""The network that a configuration describes: its transformers class and its size, before any weights are read."""

import copy
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from i18n import N_, msg
from model.errors import CheckpointError, NotSupported, first_line
from model.huggingface import checkpoint_files, formats, internals
from serving.settings import Settings

SAFE: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
INVALID_NETWORK = N_(
    "{model}: its configuration does not describe a valid network ({why}). Correct it, or choose another model."
)
LANGUAGE_MODELS: dict[Any, str] = {  # auto class -> its task, in order of preference
    transformers.AutoModelForSeq2SeqLM: "SEQ_TO_SEQ_CAUSAL_LM",
    transformers.AutoModelForMaskedLM: "MASKED_LM",
    transformers.AutoModelForCausalLM: "CAUSAL_LM",
    transformers.AutoModelForImageTextToText: "IMAGE_TEXT_TO_TEXT",
}
TASKS = (*LANGUAGE_MODELS.values(), "PRETRAINING")
PREDICTS = re.compile(r"LMHead|For(CausalLM|MaskedLM|ConditionalGeneration|PreTraining)$")


def gguf_option(name: str, folder: Path) -> dict[str, str]:
    """Return transformers' option for a GGUF file; empty for other weights."""
    file = formats.gguf_file(name, checkpoint_files.local_files(folder))
    return {"gguf_file": file} if file else {}


def configuration(name: str, folder: Path) -> PreTrainedConfig:
    """Return the configuration of the network in a folder. Raises CheckpointError for values it cannot have."""
    try:
        return cast(PreTrainedConfig, AutoConfig.from_pretrained(folder, **gguf_option(name, folder), **SAFE))
    except Exception as error:  # noqa: BLE001 - an unexpected value may raise anything
        raise _invalid(name, error) from None


def without_weights(name: str, config: PreTrainedConfig, auto: Any = None) -> PreTrainedModel:
    """Build the network of a configuration without memory for its weights (on the meta device).

    auto: transformers' class that makes it, the one of a language model by default. Raises NotSupported if it is no
    language model, CheckpointError for sizes that do not fit together.
    """
    try:
        own = copy.deepcopy(config)  # building a network changes its configuration
        model_class = auto or class_for(own)
        with torch.device("meta"):
            if isinstance(model_class, type) and issubclass(model_class, PreTrainedModel):
                return model_class(own)
            return cast(PreTrainedModel, model_class.from_config(own))
    except NotSupported:
        raise
    except Exception as error:  # noqa: BLE001 - impossible sizes may raise anything
        raise _invalid(name, error) from None


def check_described(
    name: str, config: PreTrainedConfig, dtype: torch.dtype, settings: Settings, auto: Any = None
) -> None:
    """Check the memory of the network that a configuration describes, whatever its files contain: missing weights are
    created. Raises TooLarge, and what without_weights raises."""
    numbers = without_weights(name, config, auto).num_parameters()
    checkpoint_files.check_loaded_size(name, numbers * dtype.itemsize, settings)


def _invalid(name: str, error: Exception) -> CheckpointError:
    why = f"{type(error).__name__}: {first_line(error)}"  # a KeyError's message is its key alone
    return CheckpointError(msg(INVALID_NETWORK, model=name, why=why))


def class_for(config: PreTrainedConfig) -> Any:
    """Return the auto class for the language model of a configuration. Raises NotSupported if there is none."""
    tasks = {auto: internals.classes_of_task(task) for auto, task in LANGUAGE_MODELS.items()}
    known = [auto for auto, classes in tasks.items() if config.model_type in classes]
    saved_as = set(config.architectures or ())
    for auto in known:
        if saved_as & _names(tasks[auto][config.model_type]):
            return auto
    if config.is_encoder_decoder:  # never load its decoder alone
        known = [
            auto
            for auto in known
            if auto in (transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForImageTextToText)
        ]
        if not known:
            raise NotSupported(msg("it is an encoder-decoder whose source is not text (speech, for example)"))
    elif getattr(config, "is_decoder", False):
        known = [auto for auto in known if auto is not transformers.AutoModelForMaskedLM]
    if known:
        return known[0]
    for name in config.architectures or ():  # it may have been saved from the text part of a larger model
        found = getattr(transformers, name, None)
        if name.endswith("ForCausalLM") and found is not None and found.config_class is type(config):
            return found
    raise NotSupported(msg("transformers has no language model of this kind"))


def is_language_model(architecture: str) -> bool:
    if PREDICTS.search(architecture):
        return True
    return any(architecture in _names(names) for task in TASKS for names in internals.classes_of_task(task).values())


def _names(classes: str | Collection[str]) -> set[str]:
    return {classes} if isinstance(classes, str) else set(classes)
