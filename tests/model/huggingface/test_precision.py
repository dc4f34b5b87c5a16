"""bfloat16 weights: kept where the processor computes them well, else float32; what is shown is float32 either way."""

import copy
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

import unmask
from i18n import say, spoken
from model import hardware
from model.huggingface import adapter, checkpoint_files
from model.masks import MaskSpec
from serving.settings import Settings
from tests.model.huggingface import families, more_families
from tests.tensors import largest_difference
from ui.sidebar.models import model_found

TEXTS = ["the cat sat on a mat and then it saw", "one big red ball"]
ROUNDING = 0.05  # of the largest logit, for numbers of 8 bits


@pytest.fixture
def keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "computes_bfloat16", lambda device: True)


def saved(name: str, folder: Path) -> PreTrainedModel:
    config = copy.deepcopy((families.ALL | more_families.OWN_CODE)[name])
    if name == "gpt_oss":  # all experts: of two that are as likely, one rounding chooses another, and all is different
        config.num_experts_per_tok = config.num_local_experts
    network = families.random_network(name, config).to(torch.bfloat16)
    network.save_pretrained(folder)
    families.save_tokenizer(folder, families.TEMPLATES.get(name, "$A"))
    return network


@pytest.mark.usefixtures("keeps")
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "bert", "t5"])
def test_kept_in_bfloat16_it_gives_its_own_logits_and_pads_without_a_trace(name: str, tmp_path: Path) -> None:
    network = saved(name, tmp_path)
    model = adapter.load(str(tmp_path), settings=Settings())
    targets = ["a big cat", "it"] if name == "t5" else None
    batch = model.encode(TEXTS, "left", targets)
    trace = model.run(batch)
    assert trace.layers[0].q.dtype == trace.states.dtype == torch.bfloat16
    assert trace.logits.dtype == trace.weights(0, 0).dtype == torch.float32
    blocked = ~trace.allowed(0, 1)
    assert float(trace.weights(0, 0, 1)[blocked].abs().sum()) == 0
    for row in (0, 1):
        ids = batch.ids[row : row + 1, batch.real(row)]
        with torch.inference_mode():
            if targets is None:
                theirs = network(ids, attention_mask=torch.ones_like(ids)).logits[0].float()
            else:
                theirs = network(batch.source.ids[row : row + 1, batch.source.real(row)], decoder_input_ids=ids)
                theirs = theirs.logits[0].float()
        off = largest_difference(trace.logits[row, batch.real(row)], theirs)
        assert off <= ROUNDING * float(theirs.abs().max())


@pytest.mark.usefixtures("keeps")
@pytest.mark.parametrize("name", ["gptj", "gpt_neo", "codegen"])
def test_one_whose_queries_and_keys_are_float32_and_its_values_not(name: str, tmp_path: Path) -> None:
    saved(name, tmp_path)
    network = hf.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16, attn_implementation="eager")
    model = adapter.load(str(tmp_path), settings=Settings())
    trace = model.run(model.encode(TEXTS[:1]))
    assert (trace.layers[0].q.dtype, trace.states.dtype) == (torch.float32, torch.bfloat16)
    with torch.inference_mode():
        theirs = network(trace.batch.ids, output_attentions=True, use_cache=False)  # a cache rounds keys
    for head, expected in enumerate(theirs.attentions[0][0].float()):  # later layers read rounded states
        assert largest_difference(trace.weights(0, head), expected) <= 2**-9  # half a step of 8 bits
    expected = theirs.logits[0].float()
    assert largest_difference(trace.logits[0], expected) <= ROUNDING * float(expected.abs().max())


@pytest.mark.usefixtures("keeps")
def test_a_lifted_mask_shows_in_bfloat16_too(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    model = adapter.load(str(tmp_path), settings=Settings())
    batch = model.encode(TEXTS)
    assert float(model.run(batch, MaskSpec(causal=False)).weights(1, 2).triu(1).sum()) > 0.1
    assert float(model.run(batch).weights(1, 2).triu(1).sum()) == 0


@pytest.mark.parametrize(("kept", "words", "in_chinese", "times"), [
    (True, "stored and computed in bfloat16 on CPU, shown in float32",
     "在 CPU 上以 bfloat16 存放和计算，以 float32 显示", 1),
    (False, "stored in bfloat16 and computed in float32 on CPU", "以 bfloat16 存储，在 CPU 上以 float32 计算", 2),
])  # fmt: skip
def test_the_page_says_it_and_the_limit_counts_memory_as_loaded(
    kept: bool, words: str, in_chinese: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "computes_bfloat16", lambda device: kept)
    saved("llama", tmp_path)
    size = sum(tensor.nbytes for tensor in load_file(tmp_path / "model.safetensors").values())
    model = adapter.load(str(tmp_path), settings=Settings())
    assert words in model_found(model)
    with spoken("zh"):
        assert say(model.describe().precision) == in_chinese
    assert model.describe().precision == words
    counted: list[float] = []
    monkeypatch.setattr(checkpoint_files, "check_loaded_size", lambda _, bytes_, __: counted.append(bytes_))
    checkpoint_files.check_limits("x", tmp_path, Settings())
    assert counted == [times * size]


@pytest.mark.parametrize(("stored", "words"), [
    ("BF16", "stored and computed in bfloat16 on CPU, shown in float32"),
    ("F16", "stored in float16 and computed in bfloat16 on CPU, shown in float32"),
    ("F32", "stored in float32 and computed in bfloat16 on CPU, shown in float32"),
    ("", "computed in bfloat16 on CPU, shown in float32"),
])  # fmt: skip
def test_what_is_stored_is_what_the_file_holds(stored: str, words: str) -> None:
    assert hardware.describe_hardware(hardware.Hardware(dtype=torch.bfloat16), stored) == words


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8])
def test_a_mask_beside_the_weights_is_not_their_type(kind: torch.dtype, tmp_path: Path) -> None:
    """As in GPT-Neo's files of before; first by name, and here of more numbers than the weights have."""
    saved("gpt_neo", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    mask = torch.ones(1, 1, 470, 470).tril().to(kind)
    tensors |= {f"transformer.h.{layer}.attn.attention.bias": mask.clone() for layer in (0, 1)}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert checkpoint_files.stored_type("x", tmp_path) == "BF16"


def test_of_several_files_the_type_is_that_of_most_of_their_weights(tmp_path: Path) -> None:
    norm, weight = {"norm": torch.ones(8)}, {"weight": torch.ones(8, 8, dtype=torch.bfloat16)}
    for number, tensors in enumerate((norm, weight), 1):
        save_file(tensors, tmp_path / f"model-0000{number}-of-00002.safetensors")
    (tmp_path / checkpoint_files.INDEX).write_text("{}")
    assert checkpoint_files.stored_type("x", tmp_path) == "BF16"


def test_of_a_network_in_memory_no_stored_type_is_known() -> None:
    network = families.random_network("llama").to(torch.bfloat16)
    model = unmask.load(network, hf.PreTrainedTokenizerFast(tokenizer_object=families.word_tokenizer("<s> $A")))
    assert repr(model).endswith(", computed in bfloat16 on CPU, shown in float32")


def test_float32_from_file_to_picture_says_only_where(tmp_path: Path) -> None:
    families.save("llama", tmp_path)
    assert adapter.load(str(tmp_path), settings=Settings()).describe().precision == "computed in float32 on CPU"
