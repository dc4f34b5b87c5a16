"""Tests of the first position number that a network gives a text, and of how little is computed to find it."""

import copy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn
from transformers import PreTrainedConfig

from model.huggingface import adapter, verify
from model.huggingface.stacks import OneStack
from serving.settings import Settings
from tests.model.huggingface import families
from tests.model.huggingface.more_families import MULTIMODAL
from tests.tensors import assert_near, largest_difference

LONG = families.PLAIN | {"max_position_embeddings": 17}


def pair_of(encoder: PreTrainedConfig, decoder: PreTrainedConfig) -> PreTrainedConfig:
    return hf.EncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, decoder_start_token_id=families.START, pad_token_id=families.PAD
    )


NETWORKS: dict[str, tuple[PreTrainedConfig, Any]] = {
    "llama": (hf.LlamaConfig(**families.WIDE), hf.AutoModelForCausalLM),
    "bert": (hf.BertConfig(**LONG), hf.AutoModelForMaskedLM),
    "nystromformer": (
        hf.NystromformerConfig(**LONG, num_landmarks=17, segment_means_seq_len=17, conv_kernel_size=1),
        hf.AutoModelForMaskedLM,
    ),
    "ibert": (hf.IBertConfig(**LONG | {"pad_token_id": 0}), hf.AutoModelForMaskedLM),
    "bart": (hf.BartConfig(**families.PAIR), hf.AutoModelForCausalLM),
    "bert2bert": (pair_of(hf.BertConfig(**LONG), hf.BertConfig(**LONG)), hf.AutoModelForSeq2SeqLM),
}
FIRST = {"llama": 0, "bert": 0, "nystromformer": 2, "ibert": 1}


def network_of(name: str) -> Any:
    config, auto = NETWORKS[name]
    torch.manual_seed(3)
    network = auto.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    return network


@pytest.mark.parametrize(("name", "first"), FIRST.items())
def test_a_network_is_told_the_numbers_that_it_counts_by_itself(name: str, first: int) -> None:
    stack = OneStack(network_of(name))
    verify.examine(stack)
    assert (stack.takes_positions, stack.first_position) == (True, first)


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("padding", ["left", "right"])
def test_a_text_of_the_whole_context_is_as_the_network_alone_has_it(name: str, padding: str, tmp_path: Path) -> None:
    """The network alone is called as usual, without positions; padding on either side changes nothing."""
    network = network_of(name)
    network.save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    model = adapter.load(str(tmp_path), settings=Settings())
    longest = " ".join((families.WORDS * 3)[: model.context])
    batch = model.encode([longest, "one big red ball"], padding)
    logits = model.run(batch).logits
    assert batch.ids.shape[1] == model.context
    for row in (0, 1):
        here = batch.real(row)
        ids = batch.ids[row : row + 1, here]
        with torch.inference_mode():
            theirs = network(ids, attention_mask=torch.ones_like(ids)).logits[0]
        assert largest_difference(logits[row, here], theirs) <= 1e-3 * float(theirs.abs().max())


def test_the_proof_is_three_passes_and_the_numbers_take_no_more_than_the_first_attention() -> None:
    """The cost of loading, in passes over all weights; a fourth pass would cost a third more."""
    network = network_of("llama")
    calls: Counter[str] = Counter()

    def count(name: str) -> Any:
        return lambda *_: calls.update([name])

    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(count(name))
    verify.examine(OneStack(network))
    assert calls["model.layers.0.self_attn.q_proj"] == 5
    assert {calls[f"model.layers.{layer}.mlp.up_proj"] for layer in range(3)} == {3}
    assert calls["lm_head"] == 2


def test_padding_has_an_id_that_the_network_knows(tmp_path: Path) -> None:
    """A model's configuration may give a padding id beyond the vocabulary of its language part."""
    config = copy.deepcopy(MULTIMODAL["smolvlm"])
    config.pad_token_id = 128_002
    hf.AutoModelForImageTextToText.from_config(config).save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    model = adapter.load(str(tmp_path), settings=Settings())
    batch = model.encode(["the cat sat on a mat", "one"], "left")
    assert int(batch.ids.max()) < families.VOCABULARY
    alone = model.run(model.encode(["one"])).logits
    assert largest_difference(model.run(batch).logits[1, batch.real(1)], alone[0]) <= 1e-4


@pytest.mark.parametrize(
    ("encoder", "decoder", "context"),
    [
        (hf.BertConfig(**LONG), hf.BertConfig(**families.PLAIN), 17),
        (hf.BertConfig(**families.PLAIN), hf.BertConfig(**LONG), 17),
        (hf.RobertaConfig(**families.PLAIN), hf.RobertaConfig(**families.PLAIN), 46),  # positions follow padding id 0
    ],
)
def test_two_stacks_read_what_the_shorter_reads(
    encoder: PreTrainedConfig, decoder: PreTrainedConfig, context: int
) -> None:
    network = hf.EncoderDecoderModel(pair_of(encoder, decoder)).eval()
    model = adapter.from_network(network, families.word_tokenizer("<s> $A </s>"), "pair")
    long = " ".join(families.WORDS * 3)
    batch = model.encode([long], targets=[long])
    assert batch.source is not None
    assert model.context == batch.ids.shape[1] == batch.source.ids.shape[1] == context
    assert all((*batch.cut, *batch.source.cut))
    model.run(batch)


@pytest.mark.parametrize("name", ["bert2bert", "bart"])
def test_padding_on_the_left_shifts_no_number(name: str) -> None:
    """Covers two stacks that take positions, and BART's decoder alone, which takes none."""
    model = adapter.from_network(network_of(name), families.word_tokenizer("<s> $A </s>"), name)
    texts, targets = ["one big red ball near the old mat", "the cat"], ["it saw", "a cat sat on the mat"]
    given: Any = {} if name == "bart" else {"targets": targets}
    batch = model.encode(texts, "left", **given)
    trace = model.run(batch)
    for row in range(2):
        alone = batch.without_padding(row)
        if batch.source is not None:
            alone = replace(alone, source=batch.source.without_padding(row))
        assert_near(trace.logits[row, batch.real(row)], model.run(alone).logits[0], 1e-4, name)
