"""Tests of attention kernels, of modules that can change theirs and of modules that cannot."""

import importlib.util
import warnings

import pytest
import torch
import transformers as hf
from torch import Tensor

from mask_check.check import check
from mask_check.findings import DOES_NOT_APPLY, OBEYS, CannotCheck
from mask_check.kernels import selected_kernel, training_without_dropout
from mask_check.sample_networks import SmallDecoder
from tests.model.huggingface.families import random_network


@pytest.mark.parametrize(("own", "other"), [("eager", "sdpa"), ("sdpa", "eager")])
def test_a_kernel_that_is_chosen_once_is_not_called_missing(own: str, other: str) -> None:
    config = hf.FalconConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    module = hf.FalconForCausalLM._from_config(config, attn_implementation=own)
    for asked in ({}, {"kernels": ("flex_attention", "eager", "sdpa")}):
        found = check(module, length=8, **asked).finding("kernels")
        assert found.verdict == DOES_NOT_APPLY
        assert f"its kernel, {own}, cannot be changed after the model is made" in found.words
        assert f'attn_implementation="{other}"' in found.words
    found = check(module, length=8, kernels=("flex_attention",)).finding("kernels")
    assert found.words == f"it runs only with {own}: flex_attention (not offered)."


def test_a_kernel_that_can_be_changed_is_compared() -> None:
    assert check(random_network("llama"), length=8).finding("kernels").words.endswith("sdpa agree.")


@pytest.mark.parametrize("name", ["unmask", "paged|eager"])
def test_a_kernel_that_cannot_be_called_alone_is_neither_offered_nor_taken(name: str) -> None:
    importlib.import_module("model.huggingface.attention_hook")  # registers the app's own kernel
    assert name in hf.AttentionInterface().valid_keys()
    with pytest.raises(CannotCheck) as refused:
        check(random_network("llama"), length=8, kernels=(name, "eager"))
    assert name not in str(refused.value).partition(", got ")[0]


@pytest.mark.skipif(bool(importlib.util.find_spec("flash_attn")), reason="it can be computed")
def test_why_a_kernel_cannot_be_had_is_said_to_its_end() -> None:
    found = check(random_network("llama"), length=8, kernels=("flash_attention_2", "sdpa")).finding("kernels")
    why = "the package for FlashAttention2 doesn't seem to be installed"
    assert found.words == f"eager and sdpa agree. Not compared: flash_attention_2 ({why})."


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("It cannot be used due to the following error: no package. Install it.", "no package"),
        ("kernels of v4.5. need a GPU. Choose another.", "kernels of v4.5. need a GPU"),
        ("an import error: no package.", "an import error: no package"),
    ],
)
def test_a_refusal_is_cut_only_where_its_sentence_ends(said: str, why: str) -> None:
    class Refusing:
        config = type("Config", (), {"_attn_implementation": "eager"})

        def set_attn_implementation(self, name: str) -> None:
            raise ImportError(said)

    with selected_kernel(Refusing(), "flash", "eager") as refusal:
        assert refusal == why


class Remembers(SmallDecoder):
    """A decoder with buffers that cannot be written into, that training mode replaces, or that a list writes into."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril().expand(3, 8, 8))
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("moving", torch.zeros(3))
        self.kept = [self.moving]

    def embed(self, ids: Tensor) -> Tensor:
        if self.training:
            self.steps = self.steps + 1
            self.kept[0].add_(1)
        return super().embed(ids)


def test_a_module_keeps_the_buffers_it_had_whatever_they_are() -> None:
    module = Remembers()
    mask, steps = module.mask, module.steps
    assert check(module, length=8).finding("training").verdict == OBEYS
    assert module.mask is mask
    assert module.steps is steps
    assert float(steps) == 0
    assert not module.moving.any()
    with pytest.raises(IndexError), training_without_dropout(module):  # as when a law fails
        module(torch.full((1, 8), module.config.vocab_size))
    assert not module.moving.any()


class DropsByConfig(SmallDecoder):
    """A decoder with dropout from its configuration, which belongs to its user and must not change."""

    def embed(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.dropout(super().embed(ids), self.config.dropout, self.training)


def test_dropout_of_a_configuration_is_not_said_to_be_set_to_0() -> None:
    module = DropsByConfig()
    module.config.dropout = 0.5
    found = check(module, length=8).finding("training")
    assert found.words == "in training mode it is random, although every dropout was set to 0."
    assert module.config.dropout == 0.5


def test_a_part_that_is_scripted_takes_no_hooks() -> None:
    module = SmallDecoder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, but in use
        module.norm = torch.jit.script(module.norm)
    assert check(module, length=8).obeys
