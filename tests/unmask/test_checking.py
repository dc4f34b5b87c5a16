"""Tests of unmask.check and unmask.assert_causal, as used on a model under development."""

import inspect
import pydoc
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn

import unmask
from mask_check.sample_networks import SmallConfig, SmallDecoder
from mask_check.samples import SAMPLES
from tests.mask_check.modules import ReadsAhead
from tests.model.huggingface.families import word_tokenizer
from unmask.notebook import LoadedModel
from unmask.runs import Run

OWN_MODEL = """
import torch.nn.functional as F
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

class MyConfig(PretrainedConfig):
    model_type = "my-lm"
    def __init__(self, vocab_size=31, num_hidden_layers=1, **more):
        super().__init__(**more)
        self.vocab_size, self.num_hidden_layers = vocab_size, num_hidden_layers

class MyLM(PreTrainedModel):
    config_class = MyConfig
    def __init__(self, config=None):
        super().__init__(config or MyConfig())
        self.wte, self.qkv, self.head = nn.Embedding(31, 16), nn.Linear(16, 48), nn.Linear(16, 31)
        self.post_init()
    def forward(self, input_ids=None, labels=None):
        x = self.wte(input_ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        return CausalLMOutput(logits=self.head(x + F.scaled_dot_product_attention(q, k, v, is_causal=True)))
"""


class Written(nn.Module):
    """A module as people first write it: PyTorch's own layer, with its convention for masks."""

    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(31, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 31)
        self.masked = masked

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        later = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        return self.head(self.layer(self.embedding(input_ids), src_mask=later if self.masked else None))


def test_a_module_that_somebody_writes() -> None:
    assert unmask.check(Written(masked=True)).obeys
    report = unmask.check(Written(masked=False))
    assert not report.obeys
    assert [finding.law for finding in report.broken] == ["reach", "gradients"]
    assert report.findings[0].pair == (0, 1)


def test_assert_causal() -> None:
    assert unmask.assert_causal(Written(masked=True)).obeys
    with pytest.raises(AssertionError, match=r"output \d+ changes by .* which its mask blocks"):
        unmask.assert_causal(SAMPLES["future"].make())


@pytest.mark.parametrize(
    ("mask", "past", "leaks"),
    [
        ("window:5", 5, ""),
        ("window:5", None, r"output \d+ changes by .* if the tokens up to \d+ are changed, which its mask blocks"),
        ("window:5", 6, r"output \d+ changes by .* if the tokens up to \d+ are changed, which its mask blocks"),
        ("chunk:8", None, r"if the tokens up to \d+ are changed"),
        ("full", None, ""),
    ],
)
def test_assert_causal_holds_a_module_to_all_of_its_mask(mask: str, past: int | None, leaks: str) -> None:
    module = ReadsAhead(above=9999, past=past)
    if leaks:
        with pytest.raises(AssertionError, match=leaks):
            unmask.assert_causal(module, mask=mask)
        return
    text = str(unmask.assert_causal(module, mask=mask))
    assert ("its mask blocks no token" if mask == "full" else "tokens that its mask blocks from it") in text


def test_assert_causal_calls_an_encoder_one() -> None:
    config = hf.ElectraConfig(vocab_size=53, hidden_size=16, embedding_size=16, num_hidden_layers=1,
                           num_attention_heads=2, intermediate_size=16)  # fmt: skip
    assert unmask.assert_causal(hf.ElectraForMaskedLM(config).eval(), mask="full").kind == "encoder"


def test_assert_causal_of_more_tokens_is_the_whole_check() -> None:
    assert unmask.assert_causal(SmallDecoder(), tokens=30).longer == (30,)
    with pytest.raises(unmask.CannotCheck, match="expected packing None"):
        unmask.assert_causal(SmallDecoder(), packing="documents")


def test_a_gguf_file_is_of_a_repository_or_a_folder() -> None:
    with pytest.raises(ValueError, match="expected gguf_file with a repository or a folder, got one with 'story'"):
        unmask.load("story", gguf_file="x.gguf")


def test_a_file_needs_the_name_of_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("")
    with pytest.raises(unmask.CannotCheck, match=r"expected FILE\.py:NAME, a class or function of "):
        unmask.check(str(file))


def test_a_file_may_import_what_is_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parts_beside.py").write_text("import torch\nsize = 7\n")
    (tmp_path / "late_beside.py").write_text("same = abs\n")
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\nfrom parts_beside import size\ndef make():\n"
        "    return torch.nn.Sequential(torch.nn.Embedding(size, 5), torch.nn.Linear(5, size))\n"
        "class Late(torch.nn.Sequential):\n"
        "    def __init__(self): super().__init__(*make())\n"
        "    def forward(self, ids):\n"
        "        from late_beside import same\n"
        "        return same(super().forward(ids))\n"
    )
    before = [*sys.path]
    monkeypatch.setattr(sys, "path", [*before])
    assert unmask.check(f"{file}:make").obeys is not None
    assert unmask.check(f"{file}:Late").obeys is not None
    assert sys.path == [*before, str(tmp_path)]


def test_a_file_with_a_model_of_ones_own(tmp_path: Path) -> None:
    """Its module exists as long as its classes do: torch.compile looks it up too."""
    file = tmp_path / "hf.py"
    file.write_text(OWN_MODEL)
    report = unmask.check(f"{file}:MyLM", thorough=True, tokens=30)
    assert report.obeys
    assert report.finding("compile").obeys
    assert unmask.assert_causal(f"{file}:MyLM").obeys


def test_a_file_that_ends_the_program_is_a_sentence(tmp_path: Path) -> None:
    """A script without `if __name__` does this; its exit status would become that of the check."""
    file = tmp_path / "script.py"
    file.write_text("import sys\ndef make(): ...\nsys.exit(0)\n")
    with pytest.raises(unmask.CannotCheck, match=r"script\.py raised SystemExit: 0 where make was made"):
        unmask.check(f"{file}:make")


def test_assert_causal_asks_for_causal_whatever_is_declared() -> None:
    encoder = SmallDecoder(SmallConfig(is_causal=False))
    assert unmask.check(encoder).obeys
    with pytest.raises(AssertionError):
        unmask.assert_causal(encoder)


def test_a_text_with_its_tokenizer() -> None:
    words = word_tokenizer()

    class Tokenizer:
        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": words.encode(text).ids}

        def decode(self, ids: list[int]) -> str:
            return words.decode(ids)

    report = unmask.check(SmallDecoder(), text="the cat sat on a mat", tokenizer=Tokenizer())
    assert report.pieces == ("the", "cat", "sat", "on", "a", "mat")
    with pytest.raises(unmask.CannotCheck, match="a text with its tokenizer"):
        unmask.check(SmallDecoder(), text="the cat")
    encode = unmask.check(SmallDecoder(), text="the cat", tokenizer=lambda text: words.encode(text).ids)
    assert encode.pieces == tuple(map(str, words.encode("the cat").ids))


def test_it_prints_and_draws_itself() -> None:
    report = unmask.check(SAMPLES["sdpa"].make(SmallConfig(_attn_implementation="sdpa")))
    assert str(report).splitlines()[-1].startswith("It does not obey its mask on the rows checked, of 24 tokens.")
    page = report._repr_html_()
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "Attention kernels" in page


def test_kernels_by_name() -> None:
    assert unmask.check(SmallDecoder(), kernels=("eager", "sdpa")).finding("kernels").words == "eager and sdpa agree."
    with pytest.raises(unmask.CannotCheck, match=r"out of eager, sdpa, flex_attention, got 'foo'"):
        unmask.check(SmallDecoder(), kernels=("foo", "eager"))


def test_a_model_by_its_name_and_what_load_gave() -> None:
    report = unmask.check("story")
    assert (report.obeys, report.name, report.length) == (True, "story (GPT2LMHeadModel)", 24)
    for name in ("sample:sdpa", "patient:sdpa"):  # the second is its former name
        assert not unmask.check(name, length=9).obeys
    network = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2)).eval()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), pad_token="<pad>")
    loaded = unmask.load(network, tokenizer, name="mine")
    run = loaded.run("the cat sat on a mat")
    for found in (loaded.check(text=run.text), unmask.check(run), run.check(), unmask.check(loaded, text=run.text)):
        assert (found.obeys, found.name) == (True, "mine (GPT2LMHeadModel)")
        assert list(found.pieces) == run.labels
    assert (unmask.check(loaded).length, loaded.check(length=9).length, run.check(length=9).length) == (24, 9, 9)


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (None, {}, "expected a torch.nn.Module, what unmask.load gave or a model's name, got None"),
        (3, {}, "a model's name, got 3"),
        ("patient:nobody", {}, "there is no such sample module"),
        ("patient:sound", {"text": "a", "ids": [1, 2]}, "expected a text or ids, got both"),
        ("patient:sound", {"text": "a b"}, r"expected ids, or a text with its tokenizer: unmask.load"),
        ("patient:sound", {"packing": "attention_mask"}, "expected packing None or 'position_ids', got 'attention_m"),
        ("patient:sound", {"text": " "}, "expected a text or ids, got ' '"),
        ("patient:sound", {"text": "a b", "tokenizer": 3}, "expected a tokenizer called as transformers' are, got int"),
    ],
)
def test_what_cannot_be_checked(module: object, options: dict, words: str) -> None:
    with pytest.raises(unmask.CannotCheck, match=words):
        unmask.check(module, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"length": 10_000}, "expected at most 30 tokens, which is its max_position_embeddings, got 10,000"),
        ({"length": 0}, "expected a length of at least 2 tokens, got 0"),
        ({"ids": [1, 2, 40]}, "expected at least 2 ids from 0 to 39, got .1, 2, 40."),
        ({"ids": [0.5, 1.5]}, "expected ids as whole numbers"),
        ({"seed": None}, "expected a seed from 0 to 2147483647, got None"),
    ],
)
def test_what_assert_causal_cannot_ask_is_a_sentence(options: dict, words: str) -> None:
    """Both functions give the same message, before anything of that size is made."""
    network = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_positions=30, n_embd=8, n_layer=1, n_head=2))
    for ask in (unmask.assert_causal, unmask.check):
        with pytest.raises(unmask.CannotCheck, match=words):
            ask(network, **options)


def test_what_it_offers_is_listed_with_its_parameters() -> None:
    public = {name for name in dir(unmask) if not name.startswith("_")}
    assert public == set(unmask.__all__)
    listed = pydoc.plain(pydoc.render_doc(unmask))
    assert all(name in listed for name in public)
    for function in (unmask.check, unmask.assert_causal, LoadedModel.check, Run.check):
        parameters = inspect.signature(function).parameters
        assert parameters.keys() - {"module", "self"} == inspect.signature(unmask.check).parameters.keys() - {"module"}
        assert not any(one.kind == one.VAR_KEYWORD for one in parameters.values())


@pytest.mark.parametrize("called", ["check", "assert_causal", "capture", "check_loss"])
def test_inside_autocast_the_training_step_around_keeps_its_gradients(called: str) -> None:
    """Autocast caches the weights that it has cast, those of a pass without gradients too."""
    module, ids = Written(masked=True), torch.arange(12)[None]
    with torch.autocast("cpu", torch.bfloat16):
        if called == "capture":
            assert unmask.capture(module, ids).numpy().dtype == np.float32
        elif called == "check_loss":
            unmask.check_loss(lambda given: module.eval()(given[0]), (ids,), vocabulary=31)
            module.train()
        else:
            report = getattr(unmask, called)(module)
            assert report is None or "parameters" not in [one.law for one in report.broken], report
        assert torch.is_autocast_cache_enabled()
        loss = module(ids).float().logsumexp(-1).sum()
    loss.backward()
    assert [name for name, one in module.named_parameters() if one.grad is None] == []
