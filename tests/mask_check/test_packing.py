"""Tests of packed documents: which conventions a module is checked for, and that each of them is checked."""

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from mask_check.check import check
from mask_check.findings import BROKEN, CANNOT_TELL, DOES_NOT_APPLY, OBEYS, Finding
from mask_check.packing import _packed, explicit_form
from mask_check.prepare import prepare
from mask_check.sample_networks import SmallConfig, SmallDecoder, SmallOutput
from mask_check.subject import CheckedModule
from tests.mask_check.modules import SmallAttention
from tests.model.huggingface.families import random_network

POSITIONS, MASK = "by positions that restart", "by a mask [1,1,T,T] of its documents"


def packing_of(module: nn.Module) -> Finding:
    return check(module).finding("packing")


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_transformers_own_decoders_are_held_to_both(name: str, kernel: str) -> None:
    network = random_network(name)
    network.set_attn_implementation(kernel)
    finding = packing_of(network)
    assert finding.verdict == OBEYS
    assert POSITIONS in finding.words
    assert MASK in finding.words


def test_an_encoder_and_a_window_too() -> None:
    for name in ("bert", "mistral"):
        finding = packing_of(random_network(name))
        assert finding.verdict == OBEYS
        assert MASK in finding.words


def test_layers_of_two_masks_cannot_be_told_by_one() -> None:
    assert MASK not in packing_of(random_network("gemma2")).words


class LlamaThatForgets(hf.LlamaForCausalLM):
    """A Llama that drops a mask of four axes, so that the causal mask is used instead."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ):
        if attention_mask is not None and attention_mask.ndim == 4:
            attention_mask = torch.ones_like(input_ids)  # with None, the positions would show the documents
        return super().forward(input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False)


def test_a_llama_that_ignores_the_mask_is_caught() -> None:
    torch.manual_seed(5)
    network = LlamaThatForgets(random_network("llama").config).eval()
    for parameter in network.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.3)
    finding = packing_of(network)
    assert finding.verdict == BROKEN
    assert finding.words.startswith(MASK)
    assert finding.pair == (9, 0)  # the first document has 9 of the 24 tokens


class OnlyBool(SmallDecoder):
    """A decoder that converts an explicit mask to bool, so that an additive mask's 0 blocks."""

    def explicit(self, mask: Tensor) -> Tensor | None:
        return mask.bool()


class Refuses(SmallDecoder):
    def explicit(self, mask: Tensor) -> Tensor | None:
        raise ValueError(f"expected a mask of two axes, got {mask.ndim}")


class TakesNoPositions(SmallDecoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SmallOutput:  # type: ignore[override]
        return super().forward(input_ids, attention_mask)


class FirstLayerAlone(SmallDecoder):
    """A decoder that applies the mask of the documents in its first layer only."""

    def allowed(self, layer: int, inputs):
        found = super().allowed(layer, inputs)
        return found if layer == 0 or inputs.explicit is None else torch.ones_like(found).tril()


@pytest.mark.parametrize(("module", "kind"), [(SmallDecoder, torch.float32), (OnlyBool, torch.bool)])
def test_the_mask_is_the_declared_one_within_each_document(module: type[SmallDecoder], kind: torch.dtype) -> None:
    trial = prepare(CheckedModule(module(SmallConfig(packs_by=None)).eval()), [3, 4, 7, 1, 2])
    form = explicit_form(trial)
    assert form is not None
    mask = form(_packed(trial, 2), torch.float32)
    assert (mask.shape, mask.dtype) == ((1, 1, 5, 5), kind)
    open_cells = mask[0, 0] if kind == torch.bool else mask[0, 0] == 0
    drawn = ["".join("x" if cell else "." for cell in row) for row in open_cells.tolist()]
    assert drawn == ["x....", "xx...", "..x..", "..xx.", "..xxx"]


@pytest.mark.parametrize("config", [SmallConfig(attention_chunk_size=5), SmallConfig(prefix_length=6)])
def test_chunks_and_prefixes_begin_anew_with_each_document(config: SmallConfig) -> None:
    finding = packing_of(SmallDecoder(config))
    assert finding.verdict == OBEYS
    assert MASK in finding.words


def test_a_form_that_the_module_takes_is_found() -> None:
    assert packing_of(OnlyBool(SmallConfig(packs_by=None))).verdict == OBEYS


@pytest.mark.parametrize("module", [Refuses, TakesNoPositions])
def test_a_module_that_takes_no_such_mask_is_not_held_to_it(module: type[SmallDecoder]) -> None:
    assert packing_of(module(SmallConfig(packs_by=None))).verdict == DOES_NOT_APPLY


def test_a_mask_that_one_layer_heeds_is_no_document_mask() -> None:
    finding = packing_of(FirstLayerAlone(SmallConfig(packs_by=None)))
    assert finding.verdict == BROKEN
    assert "of the second document changes" in finding.words


class OneHead(SmallAttention):
    """Attention with scores of three axes: a mask of four gives outputs of five, without an error."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Tensor:
        length = input_ids.shape[1]
        places = torch.arange(length)[None] if position_ids is None else position_ids
        q, k, v = self.qkv(x := self.embedding(input_ids) + self.position(places)).chunk(3, -1)
        allowed = torch.ones(length, length, dtype=torch.bool).tril()
        allowed = allowed if attention_mask is None else allowed & attention_mask[:, None].bool()
        weights = (q @ k.mT / 32**0.5).masked_fill(~allowed, -1e9).softmax(-1)
        return self.head(x + self.out(weights @ v))


def test_an_explicit_mask_that_makes_outputs_of_another_shape_is_not_taken() -> None:
    report = check(OneHead())
    assert MASK not in report.finding("packing").words
    assert report.finding("tree").verdict == DOES_NOT_APPLY
    assert report.finding("padding-left").verdict == OBEYS


class Sentences(SmallAttention):
    """Attention with segment_ids. embeds: they are looked up in a table, as BERT's two sentences are, blocking nothing;
    else they block tokens of other documents, but positions do not restart.
    """

    def __init__(self, *, embeds: bool) -> None:
        super().__init__()
        self.segment = nn.Embedding(2, 32) if embeds else None

    def forward(self, input_ids: Tensor, segment_ids: Tensor | None = None) -> Tensor:  # type: ignore[override]
        segments = torch.zeros_like(input_ids) if segment_ids is None else segment_ids
        x = self.embed(input_ids) if self.segment is None else self.embed(input_ids) + self.segment(segments)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / 32**0.5
        if self.segment is None:
            scores = scores.masked_fill(segments[..., None] != segments[:, None], -torch.inf)
        return self.head(x + self.out(scores.softmax(-1) @ v))


def test_segment_ids_that_are_embedded_need_not_be_documents() -> None:
    report = check(Sentences(embeds=True), mask="full")
    assert report.obeys
    finding = report.finding("packing")
    assert finding.verdict == CANNOT_TELL
    assert "segment_ids are embedded" in finding.words
    finding = check(Sentences(embeds=False), mask="full").finding("packing")
    assert finding.verdict == BROKEN  # because of its positions
    assert finding.words.startswith("by segment_ids: output")
