"""Tests of what a configuration declares: a layer's mask, and which token can reach which through all layers."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as hf

from mask_check.check import check
from mask_check.declared import LayerMask, declare, farthest, layers_of
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS, CannotCheck
from tests.mask_check.test_loss import ENCODER_DECODERS


def drawn(mask: torch.Tensor) -> list[str]:
    return ["".join("x" if cell else "." for cell in row) for row in mask.tolist()]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (LayerMask(), ["x....", "xx...", "xxx..", "xxxx.", "xxxxx"]),
        (LayerMask(window=2), ["x....", "xx...", ".xx..", "..xx.", "...xx"]),
        (LayerMask(chunk=3), ["x....", "xx...", "xxx..", "...x.", "...xx"]),
        (LayerMask(prefix=3), ["xxx..", "xxx..", "xxx..", "xxxx.", "xxxxx"]),
        (LayerMask(causal=False), ["xxxxx"] * 5),
        (LayerMask(causal=False, window=1), ["xx...", "xxx..", ".xxx.", "..xxx", "...xx"]),
    ],
)
def test_a_layers_mask(layer: LayerMask, expected: list[str]) -> None:
    assert drawn(layer.allowed(5)) == expected


@pytest.mark.parametrize(("layers", "window"), [(1, 4), (2, 3), (3, 2), (3, 5)])
def test_a_window_reaches_layers_times_window_less_one_back(layers: int, window: int) -> None:
    config = SimpleNamespace(num_hidden_layers=layers, sliding_window=window)
    declared = declare(config, 17)
    back = layers * (window - 1)
    row, column = torch.arange(17)[:, None], torch.arange(17)[None, :]
    assert torch.equal(declared.reach, (row - column >= 0) & (row - column <= back))
    assert farthest(layers_of(config)) == back


def test_a_chunk_reaches_no_farther_through_more_layers() -> None:
    declared = declare(SimpleNamespace(num_hidden_layers=3, attention_chunk_size=4), 11)
    assert torch.equal(declared.reach, LayerMask(chunk=4).allowed(11))


def test_layers_may_have_a_window_of_their_own_each() -> None:
    found = layers_of(hf.NeoMMEConfig().get_text_config(), "encoder")
    assert [layer.window for layer in found[:6]] == [256, 1024, 256, 1024, 256, None]
    assert {layer.causal for layer in found} == {False}


def test_layers_of_two_kinds_are_multiplied() -> None:
    config = SimpleNamespace(sliding_window=2, layer_types=["sliding_attention", "full_attention"])
    declared = declare(config, 7)
    assert torch.equal(declared.reach, LayerMask().allowed(7))
    assert declared.words == "1 of 2 layers causal, window 2; 1 of 2 layers causal"


@pytest.mark.parametrize(
    ("config", "kind", "expected"),
    [
        (hf.GPT2Config(n_layer=2), "decoder", [LayerMask()] * 2),
        (hf.MistralConfig(num_hidden_layers=2, sliding_window=7), "decoder", [LayerMask(window=7)] * 2),
        (hf.Qwen2Config(num_hidden_layers=2, use_sliding_window=False, sliding_window=7), "decoder", [LayerMask()] * 2),
        (hf.BertConfig(num_hidden_layers=2), "encoder", [LayerMask(causal=False)] * 2),
        (None, "decoder", [LayerMask()]),
    ],
)
def test_configurations_of_transformers(config: object, kind: str, expected: list[LayerMask]) -> None:
    assert layers_of(config, kind) == expected


def test_a_mask_by_hand() -> None:
    assert torch.equal(declare(None, 5, "window:2").reach, LayerMask(window=2).allowed(5))
    for each in (["window:2", "causal"], "window:2, causal"):
        found = declare(None, 5, each)
        assert [layer.long().sum().item() for layer in found.layers] == [9, 15]
        assert found.words.endswith("1 of 2 layers causal")
    with pytest.raises(CannotCheck, match='expected a mask "causal"'):
        declare(None, 5, "window:2,nope")
    with pytest.raises(CannotCheck, match="expected a mask for each of 3 layers, got 2"):
        declare(hf.MistralConfig(num_hidden_layers=3), 5, "window:2,causal")
    assert str(declare(None, 5, "window:2").words).endswith(
        "of several layers, give one mask for each, with commas between them)"
    )
    assert declare(hf.MistralConfig(num_hidden_layers=2), 5, "window:2").words == (
        "causal, window 2 (a reach of 2 over 2 layers)"
    )
    assert declare(None, 5, "full").reach.all()
    given = torch.eye(5, dtype=torch.bool)
    assert torch.equal(declare(None, 5, given).reach, given)
    assert torch.equal(declare(None, 5, [given, LayerMask(window=2).allowed(5)]).reach, LayerMask(window=2).allowed(5))


@pytest.mark.parametrize(
    "mask", ["windows:3", "window:", "window:0", "causal:2", torch.ones(4, 4), torch.ones(3, 3).bool()]
)
def test_a_mask_that_means_nothing_is_refused(mask: object) -> None:
    with pytest.raises(CannotCheck, match="expected a mask"):
        declare(None, 4, mask)


def words_of(report: Any, law: str) -> tuple[str, str]:
    """Return the verdict and the words of one law's finding."""
    return next((one.verdict, one.words) for one in report.findings if one.law == law)


def mistral(**more: Any) -> hf.MistralForCausalLM:
    sizes = {"vocab_size": 37, "hidden_size": 24, "intermediate_size": 33, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return hf.MistralForCausalLM(hf.MistralConfig(**sizes, **heads, **more)).eval()


class Wrapped(torch.nn.Module):
    """A module without a configuration."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: torch.Tensor) -> Any:
        return self.network(input_ids).logits


def test_each_layer_is_held_to_the_mask_given_for_it() -> None:
    for given in ("window:4", "window:4,window:4"):
        verdict, words = words_of(check(mistral(sliding_window=4), mask=given), "layers")
        assert (verdict, "layers 0, 1 read what their masks allow" in words) == (OBEYS, True), words
    verdict, words = words_of(check(mistral(sliding_window=None), mask="causal,window:3"), "layers")
    assert (verdict, "layer 1: output" in words) == (BROKEN, True), words
    verdict, words = words_of(check(mistral(sliding_window=None), mask=torch.ones(24, 24).tril().bool()), "layers")
    assert (verdict, "a mask given by hand has only one length" in words) == ("does not apply", True), words
    verdict, words = words_of(check(Wrapped(mistral(sliding_window=4)), mask="window:7"), "layers")
    assert (verdict, "the mask was given for the whole module" in words) == ("does not apply", True), words


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_decoder_has_the_layers_of_its_decoder(name: str) -> None:
    network = ENCODER_DECODERS[name]().eval()
    assert "layers 0, 1 read what" in words_of(check(network), "layers")[1]
    report = check(network, mask="causal,causal")
    assert words_of(report, "layers")[0] == words_of(report, "gradients")[0] == OBEYS, report
    with pytest.raises(CannotCheck, match="a mask for each of 2 layers, got 3"):
        check(network, mask="causal,causal,causal")


class Undeclared(torch.nn.Module):
    """One layer with a window and 64 positions, neither of which is declared."""

    def __init__(self, window: int = 64) -> None:
        super().__init__()
        self.window = window
        self.embedding, self.position = torch.nn.Embedding(31, 16), torch.nn.Embedding(64, 16)
        self.layers = torch.nn.ModuleList([torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)])
        self.head = torch.nn.Linear(16, 31)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = ~LayerMask(window=self.window).allowed(x.shape[1])
        h = self.embedding(x) + self.position(torch.arange(x.shape[1]))
        return self.head(self.layers[0](h, src_mask=mask))  # type: ignore[no-any-return]


def test_the_row_that_layers_read_fits() -> None:
    sizes = {"vocab_size": 37, "hidden_size": 24, "intermediate_size": 33, "num_attention_heads": 4}
    offset = hf.RobertaConfig(**sizes, num_hidden_layers=2, max_position_embeddings=130, is_decoder=True)
    network = hf.RobertaForCausalLM(offset).eval()
    for module, length in ((network, 121), (Undeclared(), 64)):
        verdict, words = words_of(check(module), "layers")
        assert (verdict, f"in {length} tokens" in words) == (OBEYS, True), words
    verdict, words = words_of(check(Undeclared(9)), "layers")
    assert (verdict, "nothing declares a window or chunks" in words) == (CANNOT_TELL, True), words
    assert words_of(check(Undeclared(9), mask="causal"), "layers")[0] == "does not apply"  # its gradients are broken
    near = mistral(sliding_window=40)
    near.config.max_position_embeddings = 47  # of which 37 are used without a window that needs more
    assert "in 47 tokens" in words_of(check(near, length=12), "layers")[1]


@pytest.mark.parametrize("on", [False, True])
def test_gradient_checkpointing_is_compared_whether_it_is_on_or_off(on: bool) -> None:
    network = mistral(sliding_window=None)
    if on:
        network.activation_checkpointing_enable()
    assert words_of(check(network), "checkpointing")[0] == OBEYS
    assert network.is_activation_checkpointing == on
    assert hasattr(network, "_require_grads_hook") == on
    assert len(network.get_input_embeddings()._forward_hooks) == on


@pytest.mark.parametrize("within", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_whatever_is_on_outside(within: Any) -> None:
    network = mistral(sliding_window=None)
    with within():
        report = check(network)
    assert not [one for one in report.findings if "raised" in one.words], report
    assert {words_of(report, law)[0] for law in ("gradients", "layers", "derivative")} == {OBEYS}


@pytest.mark.parametrize("config", [{"n_layer": 3}, (3, 2), "small", SimpleNamespace()])
def test_a_configuration_of_one_s_own_kind_is_no_error(config: Any) -> None:
    assert layers_of(config) == [LayerMask()]
    assert declare(config, 7, "causal").reach.equal(torch.ones(7, 7).tril().bool())
