"""Tests of Hugging Face models from the Hub: requests, downloads, and every message shown in place of a model.

A fake Hub on this machine answers; no test uses another network.
"""

import json
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save
from transformers import BertConfig, BlipConfig, LlamaConfig, VisionEncoderDecoderConfig, ViTConfig

from model import catalog
from model.errors import CheckpointError, NotAvailable, TooLarge
from model.huggingface import checkpoint_files, fetching, verify
from serving.settings import Settings
from tests.model.huggingface import families
from tests.model.huggingface.fake_hub import cache, no_network
from tests.model.huggingface.listing_hub import ListingHub

REPO = "someone/tiny-llama"
SETTINGS = Settings()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = families.save("llama", tmp_path_factory.mktemp("llama"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def fake(files: dict[str, bytes], hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ListingHub]:
    more = {"README.md": b"hello", "pytorch_model.bin": b"pickle", "onnx/model.onnx": b"another format"}
    with ListingHub({REPO: {**files, **more}}) as served:
        served.use(monkeypatch)
        yield served


def downloads(fake: ListingHub) -> set[str]:
    return {
        request.rpartition("/")[2] for request in fake.requests if request.startswith("GET") and "resolve" in request
    }


def test_a_model_is_downloaded_once(fake: ListingHub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[str, int, int]] = []
    found = catalog.load(REPO, lambda *report: reports.append(report), SETTINGS)
    assert (found.name, found.num_layers, found.kind) == (REPO, 3, "decoder")
    assert downloads(fake) == set(files)
    assert {name: done for name, done, total in reports if done == total}["model.safetensors"] == len(
        files["model.safetensors"]
    )
    no_network(monkeypatch)
    assert catalog.load(REPO, settings=SETTINGS).num_layers == 3


def test_more_bytes_than_were_listed_stop_the_download(
    fake: ListingHub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MORE_THAN_LISTED", 100)
    fake.larger_than_life = {"model.safetensors": 1000}
    with pytest.raises(NotAvailable, match=r"model\.safetensors has more bytes than the Hub lists \(1,000\)"):
        catalog.load(REPO, settings=SETTINGS)


def test_no_request_carries_a_token(fake: ListingHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    catalog.load(REPO, settings=SETTINGS)
    assert fake.requests
    assert not fake.tokens


def test_a_model_in_several_files(fake: ListingHub, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    families.random_network("llama").save_pretrained(folder, max_shard_size="20KB")
    families.save_tokenizer(folder)
    older = {"model-old/a.safetensors": b"no part of it"}
    fake.repos = {REPO: {path.name: path.read_bytes() for path in folder.iterdir()} | older}
    shards = {name for name in fake.repos[REPO] if name.startswith("model-0")}
    assert len(shards) > 1
    assert catalog.load(REPO, settings=SETTINGS).num_layers == 3
    assert shards < downloads(fake)
    assert "a.safetensors" not in downloads(fake)


def test_too_many_weights_are_refused_before_anything_is_downloaded(fake: ListingHub) -> None:
    fake.larger_than_life["model.safetensors"] = 7_500_000_000
    with pytest.raises(TooLarge, match=r"needs 7\.5 GB of memory .*, and the limit is 3\.0 GB.*UNMASK_MAX_WEIGHTS_GB"):
        catalog.load(REPO, settings=SETTINGS)
    fake.larger_than_life["model.safetensors"] = 10**15
    with pytest.raises(TooLarge, match=r"needs 1000000\.0 GB of memory for its weights, and \d+\.\d GB are free"):
        catalog.load(REPO, settings=Settings(max_weights_gb=10**9))
    assert not downloads(fake)


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json", "generation_config.json"])
def test_too_large_a_tokenizer_is_refused_by_the_listing_before_it_is_downloaded(fake: ListingHub, file: str) -> None:
    fake.larger_than_life[file] = 604_000_000
    with pytest.raises(TooLarge, match=r"configuration and tokenizer take 604 MB, and at most 50 MB of them are read"):
        catalog.download_size(REPO, SETTINGS)
    assert file not in downloads(fake)


def test_configuration_and_tokenizer_are_limited_together(fake: ListingHub) -> None:
    fake.larger_than_life |= {"tokenizer.json": 30_000_000, "generation_config.json": 30_000_000}
    with pytest.raises(TooLarge, match="take 60 MB"):
        catalog.download_size(REPO, SETTINGS)
    assert downloads(fake) <= {"config.json"}


def test_a_file_larger_than_the_listing_says_stops_arriving(fake: ListingHub, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.repos[REPO]["tokenizer.json"] = bytes(3_000_000)
    fake.larger_than_life["tokenizer.json"] = 1_000
    monkeypatch.setattr(checkpoint_files, "MAX_SMALL_BYTES", 10**6)
    with pytest.raises(TooLarge, match="take 3 MB, and at most 1 MB"):
        catalog.download_size(REPO, SETTINGS)


def test_the_list_of_modules_is_limited_too(fake: ListingHub) -> None:
    fake.repos = {REPO: {"modules.json": b"[]"}}
    fake.larger_than_life["modules.json"] = 604_000_000
    with pytest.raises(TooLarge, match="take 604 MB"):
        catalog.download_size(REPO, SETTINGS)
    assert not downloads(fake)


def test_what_a_config_shows_is_said_before_the_weights_are_fetched(fake: ListingHub, files: dict[str, bytes]) -> None:
    config = json.loads(files["config.json"])
    for change, sentence in (
        ({"model_type": "mamba"}, "its layers are a state space, which does not attend to tokens"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"stored quantized \(GPTQ\)"),
        ({"vocab_size": 7}, "ids up to 19, but its weights have 7 entries"),
    ):
        fake.repos = {REPO: files | {"config.json": json.dumps(config | change).encode()}}
        with pytest.raises(CheckpointError, match=sentence):
            catalog.load(REPO, settings=SETTINGS)
        assert "model.safetensors" not in downloads(fake)
        shutil.rmtree(constants.HF_HUB_CACHE)


def test_the_size_that_counts_is_that_in_memory(fake: ListingHub, files: dict[str, bytes]) -> None:
    """A bfloat16 file doubles its size in memory, as float32."""
    half = len(files["model.safetensors"]) // 2
    fake.larger_than_life["model.safetensors"] = half
    with pytest.raises(TooLarge, match="of memory for its weights, and the limit is"):
        catalog.load(REPO, settings=Settings(max_weights_gb=1.2 * half / 1e9))
    assert "model.safetensors" not in downloads(fake)


def test_a_repository_with_nothing_but_pickles_is_refused_before_anything_is_downloaded(fake: ListingHub) -> None:
    fake.repos = {REPO: {name: content for name, content in fake.repos[REPO].items() if "safetensors" not in name}}
    with pytest.raises(CheckpointError, match="only as pickle files, which can run any code"):
        catalog.load(REPO, settings=SETTINGS)
    assert not downloads(fake)


def test_a_repository_without_a_tokenizer_or_a_config(fake: ListingHub, files: dict[str, bytes]) -> None:
    fake.repos = {REPO: {name: content for name, content in files.items() if "token" not in name}}
    with pytest.raises(CheckpointError, match=f"{REPO} has no tokenizer"):
        catalog.load(REPO, settings=SETTINGS)
    fake.repos = {REPO: {name: content for name, content in files.items() if name != "config.json"}}
    with pytest.raises(CheckpointError, match=f"{REPO} has no config.json"):
        catalog.load(REPO, settings=SETTINGS)
    assert downloads(fake) == {"config.json"}


def test_a_typing_error_and_a_private_model(fake: ListingHub) -> None:
    with pytest.raises(NotAvailable, match=r"has no public model someone/tiny-lama. Check the spelling"):
        catalog.load("someone/tiny-lama", settings=SETTINGS)


def test_a_gated_model(fake: ListingHub) -> None:
    fake.gated.add(REPO)
    with pytest.raises(NotAvailable, match=f"{REPO} is gated, and no Hugging Face access token is sent"):
        catalog.load(REPO, settings=SETTINGS)


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "no answer"])
def test_without_a_network_it_says_within_two_seconds_which_model_and_how_to_get_it(
    fake: ListingHub, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts connections and never answers
        fake.point_at(monkeypatch, mute.getsockname()[1])
        if not silent:
            mute.close()
        began = time.monotonic()
        with pytest.raises(NotAvailable, match=f"{REPO} is not on this machine.*hf download {REPO}"):
            catalog.load(REPO, settings=SETTINGS)
        assert time.monotonic() - began < 2


def test_offline_by_choice(fake: ListingHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NotAvailable, match=f"{REPO} is not on this machine, and HF_HUB_OFFLINE is set"):
        catalog.load(REPO, settings=SETTINGS)
    assert not fake.requests


def test_what_the_cache_lacks_is_fetched(fake: ListingHub, files: dict[str, bytes], hub_cache: Path) -> None:
    cache(hub_cache, REPO, {"config.json": files["config.json"]})
    assert catalog.load(REPO, settings=SETTINGS).num_heads == 4
    assert "model.safetensors" in downloads(fake)


@pytest.mark.parametrize(
    "name", ["no such model", "a/b/c", "some--one/x", "someone/x.git", "x" * 5000, "", "someone/ü"]
)
def test_what_can_be_no_id_is_refused(name: str, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_network(monkeypatch)
    with pytest.raises(CheckpointError, match="neither a folder nor a model's id"):
        catalog.load(name, settings=SETTINGS)


def test_nothing_but_what_a_hosted_demo_offers(fake: ListingHub, tmp_path: Path) -> None:
    demo = Settings(models=("story", REPO))
    assert catalog.offered(demo) == ("story", REPO)
    assert catalog.load(REPO, settings=demo).num_layers == 3
    folder = families.save("llama", tmp_path / "folder", LlamaConfig(**families.WIDE))
    for name in ("gpt2", "someone/else", str(folder)):
        with pytest.raises(CheckpointError, match=f"{name} is not available here. Choose one of story, {REPO}."):
            catalog.load(name, settings=demo)


def test_an_adapter_is_fetched_with_the_base_that_it_lies_beside(fake: ListingHub, files: dict[str, bytes]) -> None:
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    pair = {f"{layer}.lora_A.weight": torch.ones(2, 24), f"{layer}.lora_B.weight": torch.ones(40, 2)}
    config = json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2}).encode()
    fake.repos = {REPO: {**files, "adapter_config.json": config, "adapter_model.safetensors": save(pair)}}
    model = catalog.load(REPO, settings=SETTINGS)
    assert model.describe().architecture == "LlamaForCausalLM, its adapter merged"
    assert downloads(fake) == {*files, "adapter_config.json", "adapter_model.safetensors"}


def test_a_sentence_transformers_repository_says_how_to_get_the_transformer_inside(fake: ListingHub) -> None:
    fake.repos = {REPO: {"modules.json": b"[]", "0_Transformer/config.json": b"{}"}}
    with pytest.raises(CheckpointError, match=rf"hf download {REPO} --local-dir FOLDER"):
        catalog.load(REPO, settings=SETTINGS)


def test_the_transformer_inside(fake: ListingHub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the folder of the first module is downloaded; after that, the model loads without a network."""
    modules = [{"idx": 0, "path": "0_Transformer", "type": "x"}, {"idx": 1, "path": "1_Pooling", "type": "y"}]
    inside = {f"0_Transformer/{name}": content for name, content in files.items()}
    fake.repos = {REPO: {"modules.json": json.dumps(modules).encode(), "1_Pooling/config.json": b"{}", **inside}}
    assert catalog.download_size(REPO, SETTINGS) == sum(map(len, files.values()))
    assert catalog.load(REPO, settings=SETTINGS).num_layers == 3
    assert downloads(fake) == {"modules.json", *files}
    no_network(monkeypatch)
    assert catalog.load(REPO, settings=SETTINGS).num_layers == 3


def test_what_runs_on_no_text_is_said(fake: ListingHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This needs no list of known types: the network that the configuration describes is examined."""
    monkeypatch.setattr(verify, "NOT_SHOWN", {})
    vit = ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=9, image_size=16)
    bert = BertConfig(**families.PLAIN, is_decoder=True, add_cross_attention=True)
    pair = VisionEncoderDecoderConfig.from_encoder_decoder_configs(vit, bert)
    for config, sentence in ((pair, "its encoder reads pixel values"), (BlipConfig(), "does not run on text alone")):
        config.save_pretrained(tmp_path)
        families.save_tokenizer(tmp_path)
        fake.repos = {REPO: {path.name: path.read_bytes() for path in tmp_path.iterdir()} | {"model.safetensors": b""}}
        with pytest.raises(CheckpointError, match=sentence):
            catalog.load(REPO, settings=SETTINGS)
        assert "model.safetensors" not in downloads(fake)
        shutil.rmtree(constants.HF_HUB_CACHE)


def test_an_index_with_a_shard_that_is_not_listed_is_said_before_any_weights(
    fake: ListingHub, files: dict[str, bytes]
) -> None:
    weights = files["model.safetensors"]
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    more = {"model.safetensors.index.json": json.dumps(index).encode(), "model-00001-of-00002.safetensors": weights}
    fake.repos["some/half"] = {name: one for name, one in files.items() if name != "model.safetensors"} | more
    with pytest.raises(CheckpointError, match=r"names 'model-00002-of-00002.safetensors', which is not there"):
        catalog.download_size("some/half", SETTINGS)
    assert not any(name.endswith("safetensors") for name in downloads(fake))
