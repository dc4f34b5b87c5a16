"""Tests of a user's own models that are derived from PreTrainedModel only and unknown to transformers."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutput

import unmask
from mask_check.check import check
from mask_check.findings import BROKEN, DOES_NOT_APPLY, OBEYS
from tests.mask_check.held_out import VOCABULARY, Served
from tests.model.huggingface.families import random_network


class OwnConfig(hf.PretrainedConfig):
    model_type = "own-decoder"

    def __init__(self, vocab_size: int = 31, **more: Any) -> None:
        super().__init__(**more)
        self.vocab_size, self.num_hidden_layers, self.max_position_embeddings = vocab_size, 1, 96


def parts(module: nn.Module, fault: str) -> None:
    """Give a module the parts of a small decoder. fault: what is wrong with it, such as its treatment of positions."""
    torch.manual_seed(0)
    module.fault = fault  # type: ignore[assignment]
    module.wte, module.wpe = nn.Embedding(31, 16), nn.Embedding(96, 16)
    module.qkv, module.head = nn.Linear(16, 48), nn.Linear(16, 31)


def logits(module: Any, ids: Tensor, keep: Tensor | None, positions: Tensor | None) -> Tensor:
    length = ids.shape[1]
    if positions is None:
        over_pads = keep is None or module.fault == "counted over pads"
        positions = torch.arange(length)[None] if over_pads else (keep.long().cumsum(-1) - 1).clamp(min=0)
    x = module.wte(ids) + (0 if module.fault == "unused" else module.wpe(positions))
    q, k, v = module.qkv(x).chunk(3, -1)
    allowed = torch.ones(length, length).tril()[None] > 0
    allowed = allowed if keep is None else allowed & keep[:, None].bool()
    added = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    found: Tensor = module.head(x + F.scaled_dot_product_attention(q, k, v, attn_mask=added))
    return found


class Plain(nn.Module):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.config = OwnConfig()
        parts(self, fault)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> CausalLMOutput:
        return CausalLMOutput(logits=logits(self, input_ids, attention_mask, position_ids))


class NanoLM(hf.PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, fault: str = "") -> None:
        super().__init__(OwnConfig())
        parts(self, fault)
        self.post_init()

    forward = Plain.forward


@pytest.mark.parametrize("kind", [Plain, NanoLM])
@pytest.mark.parametrize(
    ("fault", "broken"),
    [("", []), ("unused", ["positions", "parameters"]), ("counted over pads", ["unpositioned"])],
)
def test_a_fault_is_one_whatever_the_class_is_derived_from(kind: type, fault: str, broken: list[str]) -> None:
    report = check(kind(fault).eval())
    assert [finding.law for finding in report.broken] == broken


@pytest.mark.parametrize(
    ("fault", "broken"), [("", []), ("unpositioned", ["padding-left", "cache"]), ("cached pads", ["cache"])]
)
def test_without_position_ids_it_is_held_to_its_mask(fault: str, broken: list[str]) -> None:
    class Untold(hf.PreTrainedModel):
        config_class = OwnConfig

        def __init__(self) -> None:
            super().__init__(OwnConfig(VOCABULARY))
            self.inner = Served(fault)

        def forward(
            self,
            input_ids: Tensor,
            attention_mask: Tensor | None = None,
            past_key_values: Any = None,
            use_cache: bool = False,
        ) -> Any:
            return self.inner(input_ids, attention_mask, past_key_values=past_key_values, use_cache=use_cache)

    report = check(Untold().eval(), length=12)
    assert [law for law in ("padding-left", "cache") if report.finding(law).verdict == BROKEN] == broken


def test_around_a_model_of_transformers_its_conventions_hold() -> None:
    """GPT-2 needs position_ids for a row that is padded on the left."""

    class Around(hf.PreTrainedModel):
        config_class = hf.GPT2Config

        def __init__(self, inner: hf.GPT2LMHeadModel) -> None:
            super().__init__(inner.config)
            self.inner = inner

        def forward(
            self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
        ) -> Tensor:
            found: Tensor = self.inner(
                input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
            ).logits
            return found

    finding = check(Around(random_network("gpt2")).eval()).finding("unpositioned")
    assert finding.verdict == DOES_NOT_APPLY
    assert "pass them to it" in finding.words


def test_what_is_not_of_transformers_is_not_said() -> None:
    """The model returns logits and computes its attention itself, whatever its name and its configuration state."""
    report = unmask.check(NanoLM())
    assert (report.kernel, report.finding("kernels").words) == (
        "its own",
        "it offers no choice of attention kernels.",
    )
    assert "language-model head" not in str(report)
    assert "FlexAttention" not in str(report)
    assert "language-model head" in str(unmask.check(random_network("gpt2").transformer))


def test_one_whose_class_supports_kernels_has_a_choice() -> None:
    class Supports(NanoLM):
        _supports_sdpa = True

    report = check(Supports())
    assert report.kernel in ("eager", "sdpa")
    assert report.finding("kernels").verdict == OBEYS


def test_one_that_says_it_is_not_causal_is_an_encoder_as_any_module_is() -> None:
    def full(module: Any, ids: Tensor) -> CausalLMOutput:
        x = module.wte(ids) + module.wpe.weight[: ids.shape[1]]
        return CausalLMOutput(logits=module.head(x + x.mean(1, keepdim=True)))

    for kind in (Plain, NanoLM):
        module = type("Full", (kind,), {"forward": lambda self, input_ids: full(self, input_ids)})()
        module.config.is_causal = False
        found = check(module)
        assert (found.kind, found.finding("reach").verdict) == ("encoder", OBEYS)
