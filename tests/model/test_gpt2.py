"""Tests of GPT-2's layout and the Transformer against references.

They are Hugging Face on random tiny configs, a recorded forward pass of a trained model, and GPT-2's recorded scores.
"""

import base64
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, GPT2Config, GPT2LMHeadModel

from model import masks
from model.attention import attention_stages
from model.base import CHECKPOINTS, Model
from model.blocks import positions_of
from model.decoder import DecoderModel
from model.gpt2 import load_transformer, save_transformer
from model.masks import MaskContext, MaskSpec
from model.text import BatchTokenizer, TokenBatch
from model.trace import LayerRecord, Trace
from model.training.story import train_tokenizer
from model.transformer import Transformer, TransformerConfig
from tests.tensors import assert_near, largest_difference

CONFIGS = {
    "tied": GPT2Config(n_layer=2, n_head=3, n_embd=21, vocab_size=83, n_positions=23),
    "untied": GPT2Config(n_layer=3, n_head=2, n_embd=22, vocab_size=89, n_positions=29, tie_word_embeddings=False),
    "another inner width": GPT2Config(n_layer=2, n_head=5, n_embd=35, vocab_size=79, n_positions=31, n_inner=53),
    "one head": GPT2Config(n_layer=1, n_head=1, n_embd=13, vocab_size=97, n_positions=17, layer_norm_epsilon=0.03),
}
LENGTHS = (11, 5, 7)


def hugging_face(config: GPT2Config) -> GPT2LMHeadModel:
    """Return a random GPT-2 with weights large enough that attention is far from uniform."""
    torch.manual_seed(0)
    config.initializer_range, config.bos_token_id, config.eos_token_id = 0.3, None, None
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:  # at the initial 0 and 1 of biases and norms a swapped pair is not noticed
            torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.2)
    return model


@pytest.fixture(scope="module", params=CONFIGS.values(), ids=list(CONFIGS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[GPT2LMHeadModel, Model]:
    """Return the same weights in Hugging Face's model and, loaded from its saved files, in Unmask's."""
    theirs = hugging_face(request.param)
    folder = tmp_path_factory.mktemp("hugging-face")
    theirs.save_pretrained(folder)
    ours = load_transformer(folder)
    encoder = BatchTokenizer(train_tokenizer(["a"], 258), ours.config.context, pad=0)
    return theirs, DecoderModel("pair", ours, encoder)


def padded(vocabulary: int, pad_side: str) -> TokenBatch:
    """Return random ids in rows of several lengths."""
    generator = torch.Generator().manual_seed(0)
    longest = max(LENGTHS)
    ids = torch.randint(0, vocabulary, (len(LENGTHS), longest), generator=generator)
    slots = torch.arange(longest)
    lengths = torch.tensor(LENGTHS)[:, None]
    keep = slots >= longest - lengths if pad_side == "left" else slots < lengths
    return TokenBatch(ids, keep, (), pad_side)


def outputs_of_heads(modules: list[torch.nn.Module], run: Callable[[], object]) -> list[Tensor]:
    """Return the inputs of attentions' output projections in run(), [B,T,W]: the heads' outputs side by side."""
    seen: list[Tensor] = []
    hooks = [module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])) for module in modules]
    run()
    for hook in hooks:
        hook.remove()
    return seen


class TestAgainstHuggingFace:
    @pytest.mark.parametrize("pad_side", ["left", "right"])
    @torch.inference_mode()
    def test_logits_weights_and_outputs_of_every_head(self, pair: tuple[GPT2LMHeadModel, Model], pad_side: str) -> None:
        theirs, ours = pair
        batch = padded(theirs.config.vocab_size, pad_side)
        expected, runs = [], []
        their_outputs = outputs_of_heads(
            [block.get_submodule("attn.c_proj") for block in theirs.transformer.h],
            lambda: expected.append(
                theirs(
                    batch.ids,
                    attention_mask=batch.keep.long(),
                    position_ids=positions_of(batch.keep),
                    output_attentions=True,
                )
            ),
        )
        fast_outputs = outputs_of_heads(
            [block.get_submodule("attention.output") for block in ours.network.blocks],
            lambda: runs.append(ours.run(batch)),
        )
        trace = runs[0]
        assert_near(trace.logits[batch.keep], expected[0].logits[batch.keep], 1e-4, "logits of real tokens")
        for layer, row in product(range(trace.num_layers), range(len(LENGTHS))):
            here, where = batch.real(row), f"layer {layer}, row {row}"
            stages = [trace.stages(layer, head, row) for head in range(trace.num_heads)]
            weights = torch.stack([stage.weights for stage in stages])[:, here]
            outputs = torch.cat([stage.output for stage in stages], dim=-1)[here]
            assert_near(weights, expected[0].attentions[layer][row][:, here], 1e-5, f"weights, {where}")
            assert_near(outputs, their_outputs[layer][row, here], 1e-5, f"attention_stages, {where}")
            assert_near(fast_outputs[layer][row, here], their_outputs[layer][row, here], 1e-5, f"attend, {where}")

    @torch.inference_mode()
    def test_a_text_of_the_whole_context_without_padding(self, pair: tuple[GPT2LMHeadModel, Model]) -> None:
        theirs, ours = pair
        shape = (2, ours.context)
        ids = torch.randint(0, theirs.config.vocab_size, shape, generator=torch.Generator().manual_seed(1))
        expected = theirs(ids, output_attentions=True)
        trace = ours.run(TokenBatch(ids, torch.ones(shape, dtype=torch.bool), ()))
        assert_near(trace.logits, expected.logits, 1e-4, "logits")
        for layer, head, row in product(range(trace.num_layers), range(trace.num_heads), range(2)):
            found = trace.weights(layer, head, row)
            assert_near(found, expected.attentions[layer][row, head], 1e-5, f"weights {layer}.{head} of row {row}")

    @torch.inference_mode()
    def test_hugging_face_reads_what_we_save(self, tiny_folder: Path, tiny: Model, tmp_path: Path) -> None:
        untied = Transformer(TransformerConfig(vocabulary=83, context=17, layers=2, heads=3, width=21, tied=False))
        save_transformer(untied, tmp_path)
        for folder, ours in ((tiny_folder, tiny.network), (tmp_path, untied)):
            loaded: Any = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
            theirs, report = loaded
            assert not report["missing_keys"]
            assert not report["unexpected_keys"]
            ids = torch.arange(13).view(1, -1) * 5
            states, _ = ours(ids, torch.arange(13), masks.causal(13, 13))
            assert_near(ours.logits(states), theirs.eval()(ids).logits, 1e-4, "logits")


class TestGptNanoSort:
    """A trained model's forward pass, recorded block by block; the parts of a block are recorded for the first."""

    @pytest.fixture
    def recorded(self, data: Path) -> dict[str, Tensor]:
        values = json.loads((data / "gpt-nano-sort" / "gpt-nano-sort-t0-partials.json").read_text())
        return {
            name: torch.frombuffer(bytearray(base64.b64decode(value["data"])), dtype=torch.float32).view(value["shape"])
            for name, value in values.items()
            if isinstance(value, dict) and "data" in value
        }

    @pytest.fixture
    def network(self, data: Path) -> Transformer:
        return load_transformer(data / "gpt-nano-sort" / "hf")

    @torch.inference_mode()
    def test_every_recorded_value(self, recorded: dict[str, Tensor], network: Transformer) -> None:
        ids = recorded["idx"].long()
        inputs, outputs = watched(network)
        allowed = masks.causal(11, 11)[None, None]
        states, qkvs = network(ids, torch.arange(11), allowed)
        q, k, v = qkvs[0]
        first, stages = "blocks.0", attention_stages(q, k, v, allowed)
        logits = network.logits(states)
        found = {
            "tok_emb": outputs["token_embedding"],
            "pos_emb": outputs["position_embedding"][None],
            "x": inputs[first][0],
            "ln1": outputs[f"{first}.attention_norm"],
            "q": q,
            "k": k,
            "v": v,
            "qkv": torch.cat([outputs[f"{first}.attention.{part}"] for part in ("query", "key", "value")], dim=-1),
            "att": stages.masked,
            "attSm": stages.weights,
            "y": stages.output.transpose(1, 2).flatten(2),
            "yProj": outputs[f"{first}.attention"][0],
            "attnResid": inputs[f"{first}.mlp_norm"][0],
            "ln2": outputs[f"{first}.mlp_norm"],
            "fc": outputs[f"{first}.mlp_in"],
            "gelu": inputs[f"{first}.mlp_out"][0],
            "mlp": outputs[f"{first}.mlp_out"],
            "mlpResid": outputs[first][0],
            **{f"block{layer}": outputs[f"blocks.{layer}"][0] for layer in range(3)},
            "ln_f": states,
            "lm_head": logits,
            "probs": logits.softmax(-1),
        }
        assert set(found) == set(recorded) - {"idx"}
        for name, value in found.items():
            assert_near(value, recorded[name], 1e-5, name)
        assert_near(inputs[f"{first}.attention.output"][0], recorded["y"], 1e-5, "y, by attend")

    def test_it_sorts(self, network: Transformer) -> None:
        """The model, trained to return six letters in order, does so with Unmask's masks and positions."""
        model = DecoderModel("sort", network, BatchTokenizer(train_tokenizer(["a"], 258), 11, pad=0))
        for letters in ([2, 0, 1, 1, 0, 2], [0, 0, 2, 1, 0, 1]):
            ids = list(letters)
            while len(ids) < 11:
                row = torch.tensor([ids])
                ids.append(int(model.run(TokenBatch(row, torch.ones_like(row) > 0, ())).next_token().argmax()))
            row = torch.tensor([ids])
            last = int(model.run(TokenBatch(row, torch.ones_like(row) > 0, ())).next_token().argmax())
            assert [*ids, last][6:] == sorted(letters)


def watched(network: Transformer) -> tuple[dict[str, tuple[Tensor, ...]], dict[str, Any]]:
    """Return two dictionaries, filled when the network runs: each module's inputs and its outputs, by its name."""
    inputs: dict[str, tuple[Tensor, ...]] = {}
    outputs: dict[str, Any] = {}

    def note(name: str, given: tuple[Tensor, ...], result: Any) -> None:
        inputs[name], outputs[name] = given, result

    for name, module in network.named_modules():
        module.register_forward_hook(lambda _, given, result, name=name: note(name, given, result))
    return inputs, outputs


@pytest.mark.parametrize("example", ["ex0", "ex1", "ex2"])
class TestRecordedScoresOfGpt2:
    """q·k of all 144 heads in every cell, and the causal weights. q = the scores, k = the unit vectors."""

    @pytest.fixture
    def recorded(self, data: Path, example: str) -> tuple[Tensor, Tensor]:
        values = json.loads((data / "gpt2-attention" / f"{example}.json").read_text())
        return torch.tensor(values["attn_raw_qk"]), torch.tensor(values["attn_softmax"])

    def test_the_trace_gives_them_and_lifts_the_mask(self, recorded: tuple[Tensor, Tensor]) -> None:
        raw, expected = recorded
        length = raw.shape[-1]
        units = torch.eye(length).expand(1, 12, length, length)
        keep = torch.ones(1, length, dtype=torch.bool)
        layers = tuple(
            LayerRecord(raw[layer][None], units, units, MaskContext(keep, length, 12), scale=1 / 8)
            for layer in range(12)
        )
        batch = TokenBatch(torch.zeros(1, length, dtype=torch.long), keep, ())
        trace = Trace(batch, MaskSpec(), layers, torch.zeros(1, length, 1), lambda states: states)
        for layer, head in product(range(12), range(12)):
            found = trace.weights(layer, head)
            assert_near(found, expected[layer, head], 1e-6, f"weights {layer}.{head}")
            lifted = trace.weights(layer, head, masks=MaskSpec(causal=False))
            assert_near(lifted, (raw[layer, head] / 8).softmax(-1), 1e-6, f"lifted weights {layer}.{head}")
            assert largest_difference(lifted, found) > 1e-3
        assert_near(trace.overview(size=length), expected, 1e-6, "overview")


class TestTransformer:
    @pytest.mark.parametrize(
        ("ids", "message"),
        [
            (torch.zeros(2, 152, dtype=torch.long), "at most 151 tokens .*got 152"),
            (torch.tensor([[0, 283]]), "ids from 0 to 282, got 0 to 283"),
            (torch.tensor([[-1, 5]]), "ids from 0 to 282, got -1 to 5"),
            (torch.zeros(2, 0, dtype=torch.long), r"at least one token, got \[2, 0\]"),
            (torch.zeros(3, dtype=torch.long), r"got \[3\]"),
        ],
    )
    def test_what_it_cannot_read_is_refused(self, tiny: Model, ids: Tensor, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            tiny.network(ids, torch.arange(ids.shape[-1]).clamp(max=150), None)


@pytest.mark.parametrize("name", ["story", "induction", "twins/with_mask"])
def test_transformers_reads_a_config_without_tokens_that_there_are_not(name: str) -> None:
    config = AutoConfig.from_pretrained(CHECKPOINTS / name)
    assert (config.bos_token_id, config.eos_token_id) == (None, None)
    assert config.vocab_size < 50256
