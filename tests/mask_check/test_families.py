"""Tests that sound families of transformers, random and trained, in two data types, cause no false alarm."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from mask_check.check import check
from mask_check.findings import OBEYS
from model.base import CHECKPOINTS
from model.huggingface import own_network
from serving.settings import Settings
from tests.model.huggingface import more_families
from tests.model.huggingface.families import DECODERS, ENCODERS, IDS, PLAIN, REFUSED, SOME, WIDE, random_network
from tests.model.huggingface.test_families import network_class

pytestmark = pytest.mark.slow  # checks forty models

TYPES = [torch.float32, torch.bfloat16]
SOUND = [*SOME, *REFUSED]  # all families in both data types: python -m tests.benchmarks.mask_check
DECODING = {  # families of transformers#48745, fixed so that they see no later tokens, and BERT
    "bert": hf.BertConfig(**PLAIN, is_decoder=True),
    "big_bird": hf.BigBirdConfig(**PLAIN, is_decoder=True, attention_type="original_full"),
}
MORE = {
    "doge": hf.DogeConfig(**WIDE),  # transformers#48748, fixed
    "llama4": hf.Llama4TextConfig(
        **WIDE | {"head_dim": 8, "intermediate_size": 36, "intermediate_size_mlp": 36, "attention_chunk_size": 5},
        num_local_experts=2,
    ),
    "gptj": hf.GPTJConfig(vocab_size=61, n_embd=24, n_layer=2, n_head=3, n_positions=47, rotary_dim=4, **IDS),
    "mpt": hf.MptConfig(vocab_size=61, d_model=24, n_layers=2, n_heads=4, max_seq_len=47),
}


def made(auto: Any, config: hf.PreTrainedConfig) -> torch.nn.Module:
    """Return a random network with weights so large that attention is far from uniform."""
    torch.manual_seed(7)
    network = auto.from_config(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return network


def must_obey(network: torch.nn.Module) -> None:
    report = check(network)
    assert report.obeys, [(finding.law, finding.verdict, finding.words) for finding in report.findings]


@pytest.mark.parametrize(("name", "number_type"), [(name, TYPES[place % 4 == 0]) for place, name in enumerate(SOUND)])
def test_families(name: str, number_type: torch.dtype) -> None:
    must_obey(random_network(name).to(number_type))


@pytest.mark.parametrize("name", [*DECODING, *MORE])
def test_more_families(name: str) -> None:
    report = check(made(hf.AutoModelForCausalLM, (DECODING | MORE)[name]))
    assert report.obeys, [(finding.law, finding.verdict, finding.words) for finding in report.findings]
    assert "causal" in report.declared


@pytest.mark.parametrize("name", ["t5gemma", "qwen2_vl", "qwen3_vl", "nystromformer", "llava"])
def test_families_that_count_or_pack_in_a_way_of_their_own(name: str) -> None:
    """In order: a decoder's own positions; positions in four rows, twice; positions from 2; use_cache in **kwargs."""
    report = check(made(network_class(name), more_families.ALL[name]))
    assert report.obeys, [(finding.law, finding.verdict, finding.words) for finding in report.findings]
    packs = report.finding("packing").words
    assert ("in 4 rows" in packs) == (name in ("qwen2_vl", "qwen3_vl"))
    cached = name != "nystromformer"
    assert (report.finding("cache").verdict == OBEYS) == cached
    if name != "t5gemma":
        assert report.finding("padding-left").verdict == OBEYS


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_as_initialised_too(name: str) -> None:
    """Weights are small and random, and logits near 0, where rounding is large beside them."""
    torch.manual_seed(5)
    must_obey(hf.AutoModelForCausalLM.from_config(DECODERS[name]).eval())


def test_an_encoder_declares_both_directions() -> None:
    assert check(random_network("bert")).declared == "both directions"
    assert set(ENCODERS) >= {"bert", "modernbert"}


@pytest.mark.parametrize(
    ("where", "number_type"), [("stories260K", torch.float32), ("gpt-nano-sort/hf", torch.bfloat16)]
)
def test_trained_models(where: str, number_type: torch.dtype, data: Path) -> None:
    must_obey(own_network.load(where, data / where, Settings(), number_type))


def test_the_story_model_through_transformers() -> None:
    """The command checks the model in float32: tests/unmask/test_command.py."""
    network = own_network.load("story", CHECKPOINTS / "story", Settings(), torch.bfloat16)
    assert type(network).__name__ == "GPT2LMHeadModel"
    must_obey(network)
