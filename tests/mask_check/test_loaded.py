"""Tests of models of transformers after from_pretrained, which makes every weight that it reads trainable."""

from pathlib import Path

import pytest
import torch
import transformers as hf

from mask_check.check import check
from mask_check.findings import BROKEN, OBEYS
from tests.model.huggingface.families import PAIR, PLAIN, VOCABULARY

SINUSOIDS = {
    "marian": hf.MarianConfig(**PAIR, decoder_start_token_id=0),
    "pegasus": hf.PegasusConfig(**PAIR, decoder_start_token_id=0),
    "roformer": hf.RoFormerConfig(**PLAIN, embedding_size=24, is_decoder=True),
}


def loaded(name: str, folder: Path) -> hf.PreTrainedModel:
    torch.manual_seed(0)
    auto = hf.AutoModelForCausalLM if name == "roformer" else hf.AutoModelForSeq2SeqLM
    made = auto.from_config(SINUSOIDS[name])
    made.save_pretrained(folder)
    network: hf.PreTrainedModel = type(made).from_pretrained(folder)
    assert network.config.vocab_size == VOCABULARY
    assert all(one.requires_grad for one in network.parameters())
    return network


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", SINUSOIDS)
def test_positions_that_its_class_never_trains_need_no_gradient(name: str, frozen: bool, tmp_path: Path) -> None:
    report = check(loaded(name, tmp_path).requires_grad_(not frozen))
    for law in ("parameters", "derivative"):
        assert report.finding(law).verdict == OBEYS, report.finding(law).words
    assert report.obeys


class Around(torch.nn.Module):
    def __init__(self, network: hf.PreTrainedModel) -> None:
        super().__init__()
        self.network, self.config = network, network.config

    def forward(self, input_ids: torch.Tensor, decoder_input_ids: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids, decoder_input_ids=decoder_input_ids).logits  # type: ignore[no-any-return]


class Cut(torch.nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input).detach()


def test_what_its_user_cuts_off_is_reported(tmp_path: Path) -> None:
    network = loaded("marian", tmp_path)
    assert check(Around(network)).finding("derivative").verdict == OBEYS
    part = network.get_decoder().layers[0].self_attn.v_proj
    part.__class__ = Cut
    torch.nn.init.normal_(part.weight)
    for module in (network, Around(network)):
        finding = check(module).finding("derivative")
        assert finding.verdict == BROKEN
        assert "embed_positions" not in finding.words
