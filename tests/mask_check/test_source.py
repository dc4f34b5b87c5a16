"""Tests of the encoder inside an encoder-decoder, measured on its own."""

from collections.abc import Callable

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from mask_check import reach, source
from mask_check.check import check
from mask_check.findings import BROKEN, DOES_NOT_APPLY, OBEYS, Finding
from mask_check.prepare import prepare
from mask_check.sample_networks import SmallDecoder, SmallPair
from mask_check.samples import SAMPLES
from mask_check.subject import CheckedModule
from mask_check.trial import CheckTrial
from tests.model.huggingface import families
from tests.model.huggingface.families import random_network

PAIRS = ["t5", "bart", "marian"]


@pytest.mark.parametrize("number_type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PAIRS)
def test_transformers_own_encoders_obey(name: str, number_type: torch.dtype) -> None:
    finding = check(random_network(name).to(number_type)).finding("encoder")
    assert finding.verdict == OBEYS
    assert "42 of 42 open pairs" in finding.words  # each of 7 source tokens by the 6 others
    assert "Pads after its source" in finding.words


T5_SIZES = {"vocab_size": 61, "d_model": 24, "d_kv": 8, "d_ff": 36, "num_layers": 2, "num_heads": 3}
SIGLIP_SIZES = families.PLAIN | {"bos_token_id": 2, "eos_token_id": 3}
HALVES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "T5": (lambda: hf.T5EncoderModel(hf.T5Config(**T5_SIZES)), "encoder"),
    "UMT5": (lambda: hf.UMT5EncoderModel(hf.UMT5Config(**T5_SIZES)), "encoder"),
    "SigLIP": (lambda: hf.SiglipTextModel(hf.SiglipTextConfig(**SIGLIP_SIZES)), "encoder"),
    "T5's stack": (lambda: random_network("t5").encoder, "encoder"),
    "T5 for tokens": (lambda: hf.T5ForTokenClassification(hf.T5Config(**T5_SIZES)), "encoder"),
    "Splinter": (lambda: hf.SplinterModel(hf.SplinterConfig(**families.PLAIN)), "encoder"),
    "MarkupLM": (lambda: hf.MarkupLMModel(hf.MarkupLMConfig(**families.PLAIN)), "encoder"),
    "AltCLIP": (lambda: hf.AltCLIPTextModel(hf.AltCLIPTextConfig(**families.PLAIN, project_dim=24)), "encoder"),
    "CLIP": (lambda: hf.CLIPTextModel(hf.CLIPTextConfig(**SIGLIP_SIZES)), "decoder"),
    "BERT as a decoder": (
        lambda: hf.BertGenerationEncoder(hf.BertGenerationConfig(**families.PLAIN, is_decoder=True)),
        "decoder",
    ),
    "BART's encoder": (lambda: random_network("bart").get_encoder(), "encoder"),
    "BART's decoder": (lambda: random_network("bart").get_decoder(), "decoder"),
    "BART without logits": (lambda: random_network("bart").model, "encoder-decoder"),
}


class MolecularEncoderLM(hf.GPT2LMHeadModel):
    """A decoder, despite its name."""


def test_a_class_of_ones_own_is_what_it_is_derived_from() -> None:
    report = check(MolecularEncoderLM(random_network("gpt2").config).eval())
    assert (report.kind, report.obeys) == ("decoder", True)


class OwnConfig(hf.PretrainedConfig):
    model_type = "own"


class SentenceEncoder(hf.PreTrainedModel):
    """An encoder derived from no model of transformers, as code on the Hub often is."""

    config_class = OwnConfig

    def __init__(self, **own: int) -> None:
        bert = hf.BertModel(random_network("bert").config)
        super().__init__(OwnConfig(vocab_size=bert.config.vocab_size, **own))
        self.bert = bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        found: Tensor = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        return found


@pytest.mark.parametrize("own", [{}, {"n_layer": 2}, {"num_hidden_layers": 2}])  # names of the layers' number, or none
def test_a_class_derived_from_no_model_is_what_it_is_called(own: dict[str, int]) -> None:
    report = check(SentenceEncoder(**own).eval())
    assert (report.kind, report.obeys) == ("encoder", True)


def test_xlm_is_an_encoder_unless_it_is_told_to_be_causal() -> None:
    sizes = {"vocab_size": 61, "emb_dim": 24, "n_layers": 2, "n_heads": 4, "n_langs": 1}
    for causal, kind in ((True, "decoder"), (False, "encoder")):
        report = check(hf.XLMWithLMHeadModel(hf.XLMConfig(**sizes, causal=causal)).eval())
        assert (report.kind, report.finding("reach").verdict) == (kind, OBEYS)


@pytest.mark.parametrize("half", HALVES)
def test_halves_of_transformers_pairs_obey(half: str) -> None:
    make, kind = HALVES[half]
    torch.manual_seed(3)
    module = make().eval()
    report = check(module)
    assert (report.kind, report.obeys) == (kind, True), report
    module.requires_grad_(False)  # as in a loaded checkpoint
    assert [one.verdict for one in check(module).findings] == [one.verdict for one in report.findings]


def encoder_of(pair: SmallPair, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Return which state changes with which source token, bool [7,7], on the row that the law is tried on."""
    measured, judge = [], reach.judge

    def recorded(trial: CheckTrial) -> Finding:
        measured.append(reach.measure(trial).reaches)
        return judge(trial)

    with monkeypatch.context() as patched:
        patched.setattr(reach, "judge", recorded)
        source.judge(prepare(CheckedModule(pair.eval()), [3, 4, 7, 1, 2]))
    (found,) = measured
    return torch.from_numpy(found)


def test_what_reaches_what_in_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert encoder_of(SmallPair(), monkeypatch).all()
    found = encoder_of(SAMPLES["encoder-causal"].make(), monkeypatch)
    assert torch.equal(found, torch.ones(7, 7).tril().bool())


def test_a_causal_encoder_is_caught_by_this_law_alone() -> None:
    report = check(SAMPLES["encoder-causal"].make())
    assert [finding.law for finding in report.broken] == ["encoder"]
    assert "where its mask is open" in report.finding("encoder").words


class Unconfigured(nn.Module):
    """An encoder-decoder that declares none of its masks."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head, self.causal = nn.Embedding(31, 16), nn.Linear(16, 31), causal
        self.position = nn.Embedding(64, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)

    def embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) + self.position(torch.arange(ids.shape[1]))

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask
        source = self.encoder(self.embed(input_ids), src_mask=mask(input_ids.shape[1]) if self.causal else None)
        target = self.embed(decoder_input_ids)
        return self.head(self.decoder(target, source, tgt_mask=mask(target.shape[1])))


def test_an_encoder_without_a_configuration_looks_both_ways() -> None:
    assert check(Unconfigured(causal=False)).finding("encoder").verdict == OBEYS
    assert [finding.law for finding in check(Unconfigured(causal=True)).broken] == ["encoder"]


def test_an_encoder_that_looks_at_pads_is_caught() -> None:
    finding = check(SAMPLES["encoder-pads"].make()).finding("encoder")
    assert finding.verdict == BROKEN
    assert finding.words.startswith("Padding on the right: with 3 pads")


def test_pads_that_only_cross_attention_sees_are_not_the_encoders() -> None:
    report = check(SAMPLES["source"].make())
    assert report.finding("cross").verdict == BROKEN
    assert report.finding("encoder").verdict == OBEYS


def test_states_that_are_not_returned_are_found_and_one_without_an_encoder_is_not_asked() -> None:
    class Silent(SmallPair):
        def forward(  # type: ignore[override]
            self, input_ids: Tensor, attention_mask: Tensor | None = None, decoder_input_ids: Tensor | None = None
        ):
            return super().forward(input_ids, attention_mask, decoder_input_ids).logits

    finding = check(Silent()).finding("encoder")
    assert finding.verdict == OBEYS
    assert check(SmallDecoder()).finding("encoder").verdict == DOES_NOT_APPLY


class AsInTheTutorial(nn.Module):
    """An encoder-decoder that embeds source and target before torch's encoder runs."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.mistake, self.embedding = mistake, nn.Embedding(31, 16)
        self.pair = nn.Transformer(16, 2, 2, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 31)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        source, target = self.embedding(input_ids), self.embedding(decoder_input_ids)
        closed = None if attention_mask is None else attention_mask == 0
        states = self.pair.encoder(source, src_key_padding_mask=closed)
        states = states[:, :5] if self.mistake == "cut" else states
        later = torch.ones(target.shape[1], states.shape[1], dtype=torch.bool).triu(1)
        return self.head(
            self.pair.decoder(
                target,
                states,
                tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
                memory_mask=later if self.mistake == "causal" else None,
                memory_key_padding_mask=None if closed is None else closed[:, : states.shape[1]],
            )
        )


@pytest.mark.parametrize(("mistake", "obeys"), [("", True), ("causal", False), ("cut", False)])
def test_states_are_what_the_decoder_is_given(mistake: str, obeys: bool) -> None:
    report = check(AsInTheTutorial(mistake).eval())
    assert report.obeys == obeys, report
    assert (report.finding("cross-reach").verdict == BROKEN) == (not obeys)
    assert report.finding("encoder").verdict == OBEYS
