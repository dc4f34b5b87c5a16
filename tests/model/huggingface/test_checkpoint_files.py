"""Tests that folders without a supported model, or with one above a limit, are refused with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, GPT2Config, PhiConfig, PreTrainedModel

import unmask
from model import catalog
from model.attention import NO_TERMS
from model.decoder import DecoderModel
from model.errors import CheckpointError, NotSupported, TooLarge
from model.huggingface import attention_hook, own_network
from model.huggingface.adapter import HuggingFaceModel
from serving.settings import Settings
from tests.model.huggingface import families

SETTINGS = Settings()
WEIGHTS = "model.safetensors"


def load(folder: Path, settings: Settings = SETTINGS) -> DecoderModel:
    return catalog.load(str(folder), settings=settings)


def transformers_own(folder: Path) -> PreTrainedModel:
    return own_network.load(str(folder), folder, SETTINGS)


def edit(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | fields))


def config(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "config.json", **fields)


def in_utf_16(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text(), encoding="utf-16")


def cut(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:5000])


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("*token*"):
        path.unlink()


def tokenizer_of_another_model(folder: Path) -> None:
    tokenizer = families.word_tokenizer()
    tokenizer.add_tokens([f"word{number}" for number in range(families.VOCABULARY)])
    tokenizer.save(str(folder / "tokenizer.json"))


def tensor_missing(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors["model.layers.1.self_attn.q_proj.weight"]
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def tensor_of_another_shape(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["model.norm.weight"] = torch.ones(7)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def index_to_elsewhere(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model-00001-of-00002.safetensors")
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "../other/model.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def own_code(folder: Path) -> None:
    (folder / "modeling_own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    auto_map = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}
    edit(folder / "config.json", model_type="own", auto_map=auto_map)


NO_LIST = 'expected "architectures" in config.json to be a list of names, got '
INVALID = r"its configuration does not describe a valid network \("
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty": (lambda folder: [path.unlink() for path in folder.iterdir()] and None, r"has no config\.json"),
    "config damaged": (
        lambda folder: (folder / "config.json").write_text('{"a') and None,
        r"config\.json cannot be read",
    ),
    "config no object": (lambda folder: (folder / "config.json").write_text("[]") and None, "is not a JSON object"),
    "no type": (lambda folder: edit(folder / "config.json", model_type=None), "has no model_type"),
    "a name in place of a list": (config(architectures="LlamaForCausalLM"), NO_LIST + "'LlamaForCausalLM'"),
    "numbers in place of names": (config(architectures=[5]), NO_LIST + r"\[5\]"),
    "unknown type": (
        lambda folder: edit(folder / "config.json", model_type="new"),
        "does not support its architecture",
    ),
    "own code": (own_code, "needs custom code, which Unmask never runs"),
    "quantised": (
        lambda folder: edit(folder / "config.json", quantization_config={"quant_method": "mxfp4"}),
        "stored quantized",
    ),
    "another width": (lambda folder: edit(folder / "config.json", hidden_size=32), "do not fit the configuration"),
    "an unknown activation": (config(hidden_act="nope"), INVALID + r"KeyError: 'nope'\)"),
    "a number as text": (config(num_hidden_layers="3"), INVALID + "StrictDataclassFieldValidationError"),
    "text for a number": (config(rms_norm_eps="a"), INVALID + "StrictDataclassFieldValidationError"),
    "unknown positions": (
        config(rope_parameters={"rope_type": "nope", "rope_theta": 1e4}),
        INVALID + "KeyError: 'nope'",
    ),
    "another encoding": (in_utf_16, INVALID + "OSError: .* is not a valid JSON file"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "no weights in safetensors format"),
    "truncated": (cut, r"model\.safetensors is damaged or truncated"),
    "only pickles": (
        lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin") and None,
        "only as pickle files, which can run any code",
    ),
    "no tokenizer": (no_tokenizer, "has no tokenizer"),
    "damaged tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{}") and None,
        "its tokenizer cannot be read",
    ),
    "another tokenizer": (tokenizer_of_another_model, r"ids up to \d+, but its weights have 61 entries"),
    "a tensor missing": (tensor_missing, r"lacks 1 of the weights.*layers\.1\.self_attn\.q_proj"),
    "another shape": (tensor_of_another_shape, "do not fit the configuration"),
    "an index that leads elsewhere": (index_to_elsewhere, r"names '\.\./other/model\.safetensors', which is not there"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_with_a_folder_is_said(folder: Path, damage: str) -> None:
    spoil, sentence = DAMAGES[damage]
    spoil(folder)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    assert not (folder / "ran").exists()


def test_code_beside_a_known_architecture_is_never_run(folder: Path) -> None:
    own_code(folder)
    edit(folder / "config.json", model_type="llama")
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling_own.OwnTokenizer", None]})
    assert isinstance(load(folder), HuggingFaceModel)
    assert not (folder / "ran").exists()


def test_sizes_that_transformers_itself_cannot_run_are_refused_as_such(tmp_path: Path) -> None:
    odd = PhiConfig(**families.PLAIN)  # it rotates half of each head's width, in pairs: half of 6 is 3
    with pytest.raises(NotSupported, match=r"\(phi\) cannot be shown: transformers itself cannot run it \(Runtime"):
        load(families.save("phi", tmp_path, odd))


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "t5"])
def test_an_unknown_term_is_found_by_the_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(
        attention_hook, "ScoreTerms", lambda *_: NO_TERMS
    )  # as if it had no soft-cap, sinks or position bias
    with pytest.raises(NotSupported, match="its attention is computed in a non-standard way"):
        load(families.save(name, tmp_path / name))


def test_more_weights_than_allowed(folder: Path) -> None:
    size = sum(tensor.nbytes for tensor in load_file(folder / WEIGHTS).values())
    load(folder, Settings(max_weights_gb=size / 1e9))
    with pytest.raises(
        TooLarge, match=rf"needs {size / 1e9:.3g} GB of memory for its weights, and the limit is 1e-05 GB"
    ):
        load(folder, Settings(max_weights_gb=1e-5))


@pytest.mark.parametrize("reads", [load, unmask.load, transformers_own])
def test_more_weights_than_the_files_hold(folder: Path, monkeypatch: pytest.MonkeyPatch, reads: Callable) -> None:
    """transformers would create them, in the size that the configuration states, before it compares shapes."""
    edit(folder / "config.json", vocab_size=10**9)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *_, **__: pytest.fail("the weights were read"))
    with pytest.raises(TooLarge, match=r"needs 1\d\d\.\d GB of memory for its weights, and the limit is 3\.0 GB"):
        reads(folder)


def test_more_weights_than_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-precision files take twice their size in memory, as float32."""
    tensors = {name: tensor.half() for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    size = sum(tensor.nbytes for tensor in tensors.values())
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2 * size))
    load(folder)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2 * size - 1))
    with pytest.raises(TooLarge, match=r"GB of memory for its weights, and .* GB are free"):
        load(folder)


def test_folders_stay_inside_the_allowed_root(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    inside = families.save("llama", root / "inside")
    settings = Settings(model_root=root)
    assert load(inside, settings).num_layers == 3
    (root / "link").symlink_to(folder)
    for outside in (folder, root / ".." / "llama", root / "link", Path("/"), tmp_path / "rooted", Path("~")):
        with pytest.raises(CheckpointError, match="is outside the folder that this server loads models from"):
            load(outside, settings)
    (inside / WEIGHTS).unlink()
    (inside / WEIGHTS).symlink_to(folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"model\.safetensors links outside"):
        load(inside, settings)


def test_a_checkpoint_s_tokenizer_above_it_stays_inside_the_allowed_root_too(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "root" / "run"
    checkpoint = run / "checkpoint-5"
    families.save("llama", checkpoint)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (checkpoint / file).rename(run / file)
    (run / "notes.txt").symlink_to(folder / "config.json")  # never read
    assert load(checkpoint, Settings(model_root=run)).num_layers == 3
    with pytest.raises(CheckpointError, match="has no tokenizer that can be read"):
        load(checkpoint, Settings(model_root=checkpoint))
    (run / "tokenizer.json").unlink()
    (run / "tokenizer.json").symlink_to(folder / "tokenizer.json")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json links outside"):
        load(checkpoint, Settings(model_root=run))


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~nobody-of-this-name/x", "/" + "x" * 5000, "/\0"])
def test_a_path_to_nothing(name: str) -> None:
    with pytest.raises(CheckpointError, match="is not a folder on this machine"):
        catalog.load(name, settings=SETTINGS)


def test_an_encoder_saved_without_its_head_has_attention_and_no_logits(tmp_path: Path) -> None:
    torch.manual_seed(3)
    BertModel(BertConfig(**families.PLAIN)).save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path, families.TEMPLATES["bert"])
    model = load(tmp_path)
    assert not model.predicts
    trace = model.run(model.encode(["the cat"]))
    assert trace.weights(0, 0).sum(-1).allclose(torch.ones(4))
    with pytest.raises(NotSupported, match="was saved without a language-model head"):
        _ = trace.logits


def test_a_gpt2_that_our_own_transformer_does_not_compute_goes_by_way_of_transformers(tmp_path: Path) -> None:
    sizes = {"vocab_size": families.VOCABULARY, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 47}
    ours = load(families.save("gpt2", tmp_path / "ours", GPT2Config(**sizes)))
    theirs = load(families.save("gpt2", tmp_path / "theirs", GPT2Config(**sizes, activation_function="relu")))
    assert type(ours) is DecoderModel
    assert isinstance(theirs, HuggingFaceModel)
    edit(tmp_path / "ours" / "config.json", architectures="GPT2LMHeadModel")
    with pytest.raises(CheckpointError, match=NO_LIST + "'GPT2LMHeadModel'"):
        load(tmp_path / "ours")


class TestSettings:
    def test_from_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        variables = {
            "UNMASK_MAX_WEIGHTS_GB": "0.5",
            "UNMASK_MODELS": "story, gpt2 ,,someone/x",
            "UNMASK_MODEL_ROOT": str(tmp_path),
            "UNMASK_MODELS_IN_MEMORY": "1",
            "OTHER": "?",
        }
        monkeypatch.setattr("os.environ", variables)
        found = Settings.from_environment()
        assert found == Settings(
            max_weights_gb=0.5, models=("story", "gpt2", "someone/x"), model_root=tmp_path, models_in_memory=1
        )
        assert found.max_weights_bytes == 500_000_000

    def test_none_and_empty_ones_leave_the_defaults(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for variables in ({}, {"UNMASK_MODELS": " "}):
            monkeypatch.setattr("os.environ", variables)
            assert Settings.from_environment() == Settings()
        assert (Settings().max_weights_gb, Settings().models, Settings().model_root) == (3.0, (), None)

    @pytest.mark.parametrize("variable", ["UNMASK_MAX_WEIGHTS_GB", "UNMASK_MODELS_IN_MEMORY"])
    @pytest.mark.parametrize("value", ["many", "-1", "0", "inf", "nan"])
    def test_a_bad_one_is_named(self, variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(variable, value)
        with pytest.raises(ValueError, match=rf"^{variable}: expected [^\n]*, got '{value}'$"):
            Settings.from_environment()
