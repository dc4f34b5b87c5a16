"""Tests of GPT-2's files: a saved network is loaded unchanged, and every kind of unusable checkpoint is refused."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.base import Model
from model.errors import CheckpointError
from model.gpt2 import load_transformer, save_transformer
from model.transformer import Transformer, TransformerConfig
from tests.tensors import assert_near
from tests.tiny import TINY


def test_a_model_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    for tied, mlp_width in product([True, False], [None, 37]):
        config = TransformerConfig(
            vocabulary=83, context=17, layers=2, heads=3, width=21, mlp_width=mlp_width, epsilon=0.03, tied=tied
        )
        model = Transformer(config)
        save_transformer(model, tmp_path)
        loaded = load_transformer(tmp_path)
        assert loaded.config == config
        assert not loaded.training
        found = loaded.state_dict()
        for name, expected in model.state_dict().items():
            assert_near(found[name], expected, 0, name)


def test_half_precision_is_stored_small_and_loaded_in_full(tmp_path: Path) -> None:
    model = Transformer(TINY)
    save_transformer(model, tmp_path / "full")
    save_transformer(model, tmp_path / "half", torch.float16)
    full, half = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half"))
    assert half < 0.55 * full
    for name, found in load_transformer(tmp_path / "half").state_dict().items():
        assert found.dtype == torch.float32
        assert_near(found, model.state_dict()[name].half().float(), 0, name)


def test_names_without_their_prefix_are_understood(tiny_folder: Path, tiny: Model, tmp_path: Path) -> None:
    """OpenAI's original files have such names."""
    copy(tiny_folder, tmp_path)
    tensors = load_file(tiny_folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    assert bare.keys().isdisjoint(tensors)
    save_file(bare, tmp_path / "model.safetensors")
    found = load_transformer(tmp_path).state_dict()
    for name, expected in tiny.network.state_dict().items():
        assert_near(found[name], expected, 0, name)


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_a_head_that_differs_from_the_embedding_is_not_tied_to_it(
    tiny_folder: Path, tiny: Model, tmp_path: Path, prefix: str
) -> None:
    """transformers decides so too, whatever config.json states, whose default is that they are tied."""
    copy(tiny_folder, tmp_path)
    tensors = load_file(tiny_folder / "model.safetensors")
    embedding = tensors["transformer.wte.weight"]
    for head, tied in ((embedding.clone(), True), (embedding.flip(0), False)):
        stored = {name.replace("transformer.", prefix): tensor for name, tensor in tensors.items()}
        save_file(stored | {"lm_head.weight": head.contiguous()}, tmp_path / "model.safetensors")
        found = load_transformer(tmp_path)
        assert_near(found.unembedding.weight, head, 0, "head")
        assert_near(found.token_embedding.weight, embedding, 0, "embedding")
        assert (found.unembedding.weight is found.token_embedding.weight) == found.config.tied == tied


def test_an_embedding_that_is_stored_as_the_head_alone_is_read(tiny_folder: Path, tiny: Model, tmp_path: Path) -> None:
    """safetensors' own save_model writes two tied weights so, under the first of their names."""
    copy(tiny_folder, tmp_path)
    change_tensors(tmp_path, lambda tensors: {"lm_head.weight": tensors.pop("transformer.wte.weight"), **tensors})
    found = load_transformer(tmp_path).state_dict()
    for name, expected in tiny.network.state_dict().items():
        assert_near(found[name], expected, 0, name)


def copy(folder: Path, to: Path) -> Path:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (to / name).write_bytes((folder / name).read_bytes())
    return to


class TestUnusableCheckpoints:
    """Each error states which file, what was expected and what was found."""

    @pytest.fixture
    def folder(self, tiny_folder: Path, tmp_path: Path) -> Path:
        return copy(tiny_folder, tmp_path)

    def refused(self, folder: Path, file: str, *parts: str) -> None:
        with pytest.raises(CheckpointError) as caught:
            load_transformer(folder)
        message = str(caught.value)
        for part in (str(folder / file), "expected", "found", *parts):
            assert part in message

    def test_the_copy_itself_is_usable(self, folder: Path) -> None:
        assert load_transformer(folder).config == TINY

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
    def test_a_missing_file(self, folder: Path, name: str) -> None:
        (folder / name).unlink()
        self.refused(folder, name, "no such file")

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.5, 0.999])
    def test_truncated_weights(self, folder: Path, share: float) -> None:
        path = folder / "model.safetensors"
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        self.refused(folder, "model.safetensors", "safetensors file", "damaged or truncated")

    @pytest.mark.parametrize(
        "content",
        [b"<html>not found</html>", b"\xff" * 500, b"PK\x03\x04" + bytes(500), b"version https://git-lfs.github.com/"],
        ids=["a web page", "noise", "a zip", "a pointer"],
    )
    def test_weights_that_are_something_else(self, folder: Path, content: bytes) -> None:
        (folder / "model.safetensors").write_bytes(content)
        self.refused(folder, "model.safetensors", "damaged or truncated")

    def test_a_tensor_of_another_shape(self, folder: Path) -> None:
        change_tensors(folder, lambda tensors: {**tensors, "transformer.wpe.weight": torch.zeros(149, 21)})
        self.refused(folder, "model.safetensors", "transformer.wpe.weight [151, 21]", "[149, 21]")

    def test_a_missing_tensor(self, folder: Path) -> None:
        name = "transformer.h.1.mlp.c_fc.bias"
        change_tensors(folder, lambda tensors: {key: value for key, value in tensors.items() if key != name})
        self.refused(folder, "model.safetensors", name, "none (27 others)")

    def test_an_untied_model_without_its_output(self, folder: Path) -> None:
        change_config(folder, tie_word_embeddings=False)
        self.refused(folder, "model.safetensors", "lm_head.weight")

    @pytest.mark.parametrize(
        ("change", "parts"),
        [
            ({"n_embd": 22}, ("multiple of the heads", "22 and 3")),
            ({"n_head": 0}, ("n_head", "'0'")),
            ({"n_layer": -1}, ("n_layer", "'-1'")),
            ({"n_layer": "2"}, ("n_layer", "'2'")),
            ({"n_layer": None}, ("n_layer", "'None'")),
            ({"vocab_size": 10**12}, ("vocab_size", str(10**12))),
            ({"model_type": "llama"}, ("expected model_type 'gpt2'", "'llama'")),
            ({"activation_function": "relu"}, ("expected activation_function 'gelu_new'", "'relu'")),
            ({"scale_attn_weights": False}, ("expected scale_attn_weights True", "False")),
            ({"scale_attn_by_inverse_layer_idx": True}, ("scale_attn_by_inverse_layer_idx False", "True")),
        ],
        ids=lambda value: str(value) if isinstance(value, dict) else "",
    )
    def test_a_config_not_ours(self, folder: Path, change: dict[str, object], parts: tuple[str, ...]) -> None:
        change_config(folder, **change)
        self.refused(folder, "config.json", *parts)

    @pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"model_type": "gpt2"}', '{"model_type": "gp'])
    def test_a_config_that_is_no_config(self, folder: Path, content: str) -> None:
        (folder / "config.json").write_text(content)
        self.refused(folder, "config.json")

    def test_a_config_of_other_sizes_than_the_weights(self, folder: Path) -> None:
        change_config(folder, n_layer=3)
        self.refused(folder, "model.safetensors", "transformer.h.2.ln_1.weight")
        change_config(folder, n_layer=2, n_inner=None)
        self.refused(folder, "model.safetensors", "mlp.c_fc.weight [21, 84]", "[21, 37]")


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path)


def change_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
