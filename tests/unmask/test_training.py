"""Tests of assert_causal where models are trained: how often it calls them, and what it accepts."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema
import pytest
import torch
import torch.distributed as dist
import transformers as hf
from torch import Tensor, nn

import unmask
from mask_check import findings
from mask_check.check import check
from mask_check.sample_networks import SmallConfig, SmallDecoder
from mask_check.samples import SAMPLES
from tests.mask_check.modules import Nano, ReadsAhead, SmallAttention, Written
from unmask import checking

ROOT = Path(__file__).parents[2]
OUTSIDE = """
import torch
from tests.mask_check.modules import ReadsAhead

class Good(ReadsAhead):
    def __init__(self): super().__init__(above=9999)

def leaks(): return ReadsAhead(8, 0)
number = 3
"""


class TakesEmbeddings(nn.Module):
    """A trunk that takes embeddings [B,T,16] and returns a tuple of a loss and states."""

    def __init__(self, *, causal: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.causal = causal

    def forward(self, inputs_embeds: Tensor) -> tuple[Tensor, Tensor]:
        mask = nn.Transformer.generate_square_subsequent_mask(inputs_embeds.shape[1]) if self.causal else None
        states = self.layer(inputs_embeds, src_mask=mask)
        return states.mean(), states


class TakesStates(TakesEmbeddings):
    """A trunk whose argument could be anything."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(x)


def gpt2() -> hf.GPT2LMHeadModel:
    torch.manual_seed(0)
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=61, n_embd=24, n_layer=2, n_head=3, n_positions=140))


MODULES = {
    "own": lambda causal: ReadsAhead(above=9999 if causal else 64),
    "nanogpt": lambda causal: Nano(causal=causal),
    "embeddings": lambda causal: TakesEmbeddings(causal=causal),
    "states": lambda causal: TakesStates(causal=causal),
    "compiled": lambda causal: torch.compile(TakesEmbeddings(causal=causal), backend="eager"),
    "written": lambda causal: Written() if causal else SAMPLES["future"].make(),
    "sample": lambda causal: SAMPLES["sound" if causal else "sdpa"].make(),
    "pair": lambda causal: SAMPLES["sound-pair"].make() if causal else SmallDecoder(SmallConfig(is_causal=False)),
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_at_most_three_forwards_and_one_for_the_cause(name: str, causal: bool) -> None:
    module = MODULES[name](causal).train()
    calls: list[Any] = []
    inner = getattr(module, "_orig_mod", module)
    inner.register_forward_hook(lambda *_: calls.append(1))
    if causal:
        assert unmask.assert_causal(module).obeys
    else:
        with pytest.raises(AssertionError, match="which its mask blocks"):
            unmask.assert_causal(module)
    assert 2 <= len(calls) <= (3 if causal else 4)
    assert module.training


@pytest.mark.parametrize("name", ["embeddings", "states", "compiled", "nanogpt"])
def test_the_whole_check_takes_them_too(name: str) -> None:
    assert check(MODULES[name](True)).obeys
    assert "reach" in [finding.law for finding in check(MODULES[name](False)).broken]


class Recurrent(nn.Sequential):
    """An LSTM that takes rows for positions: a row is changed by those before it, the first by none."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Embedding(31, 16), nn.LSTM(16, 16))

    def forward(self, ids: Tensor) -> Tensor:
        states: Tensor = super().forward(ids)[0]
        return states


@pytest.mark.parametrize(("make", "cause"), [
    (lambda: Written("batch norm"), "norm has track_running_stats=False"), (Recurrent, "1 has batch_first=False"),
])  # fmt: skip
def test_rows_that_change_each_other_are_no_leak_and_no_noise(make: Any, cause: str) -> None:
    report = checking.quick_check(make())
    assert [finding.law for finding in report.broken] == ["batch"]
    assert cause in report.finding("batch").words
    assert report.finding("reach").verdict == findings.CANNOT_TELL


@pytest.mark.parametrize("number_type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropped", [0.1, 0.5])
def test_outputs_that_are_random_are_no_noise(dropped: float, number_type: torch.dtype) -> None:
    module = SmallAttention()
    module.weights = lambda scores, _: nn.functional.dropout(scores.softmax(-1), dropped)  # type: ignore[method-assign]
    with pytest.raises(unmask.CannotCheck, match="from one run to the next"):
        unmask.assert_causal(module.to(number_type))
    module.weights = lambda scores, _: scores * torch.nan  # type: ignore[method-assign]
    with pytest.raises(unmask.CannotCheck, match="not finite"):
        unmask.assert_causal(module)


def test_a_module_whose_tokens_change_no_other_output_is_not_causal_yet() -> None:
    """With projections initialized to 0 nothing is known of the mask, which fails a test but not a training."""
    module = SmallAttention()
    module.weights = lambda scores, _: scores.softmax(-1)  # type: ignore[method-assign]
    nn.init.zeros_(module.out.weight)
    with pytest.raises(AssertionError, match="no token changed another's output"):
        unmask.assert_causal(module)
    callback = unmask.trainer_callback()
    callback.on_train_begin(None, None, None, model=module)
    nn.init.ones_(module.out.weight)
    with pytest.raises(AssertionError, match="which its mask blocks"):
        callback.on_train_begin(None, None, None, model=module)


@pytest.mark.parametrize(("own", "vocabulary"), [(20, 50), (21, 50), (31, 50), (20, 50_257), (21, 50_257)])
def test_a_prefix_that_is_too_long(own: int, vocabulary: int) -> None:
    class Prefix(SmallAttention):
        def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
            allowed[:own, :own] = True
            return super().weights(scores, allowed)

    module = Prefix()
    module.embedding, module.head = nn.Embedding(vocabulary, 32), nn.Linear(32, vocabulary)
    broken = checking.quick_check(module, mask="prefix:20").broken
    pairs = [finding.pair or () for finding in broken]
    assert [token for _, token in pairs] == ([] if own == 20 else [20])
    assert all(output < 20 for output, _ in pairs)


@pytest.mark.parametrize(("size", "vocabulary"), [(4, 50_257), (64, 50_257), (16, 130_000)])
def test_blocks_that_leak_in_a_module_of_many_ids(size: int, vocabulary: int) -> None:
    """Few rows fit into a forward pass then; the first token is a block of its own."""

    class Blocks(SmallAttention):
        def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
            block = (torch.arange(len(allowed)) + size) // size * (torch.arange(len(allowed)) > 0)
            return super().weights(scores, allowed | (block[:, None] == block))

    module = Blocks()
    module.embedding, module.head = nn.Embedding(vocabulary, 32), nn.Linear(32, vocabulary)
    with pytest.raises(AssertionError, match="which its mask blocks"):
        unmask.assert_causal(module)


@pytest.mark.parametrize("seed", range(3))
def test_a_bfloat16_module_as_it_is_initialized(seed: int) -> None:
    """A single token changes other outputs by less than the rounding of the largest output, but by more than 0."""
    torch.manual_seed(seed)
    network = hf.BloomForCausalLM(hf.BloomConfig(vocab_size=61, hidden_size=64, n_layer=2, n_head=4))
    assert unmask.assert_causal(network.bfloat16()).obeys


def test_outputs_of_what_comes_before_alone() -> None:
    class Strict(SmallAttention):
        def forward(self, input_ids: Tensor) -> Tensor:
            return nn.functional.pad(super().forward(input_ids), (0, 0, 1, 0))[:, :-1]

    assert unmask.assert_causal(Strict()).obeys


@pytest.mark.parametrize("drop", [False, True])
def test_forwards_where_the_context_is_not_known(drop: bool) -> None:
    module, calls = SmallAttention(), list[int]()
    module.position = nn.Embedding(64, 32)
    if drop:
        module.weights = lambda scores, _: nn.functional.dropout(scores.softmax(-1), 0.2)  # type: ignore
    module.register_forward_hook(lambda *_: calls.append(1), always_call=True)
    with pytest.raises(unmask.CannotCheck, match="the same 48 tokens") if drop else nullcontext():
        unmask.assert_causal(module)
    assert len(calls) == 4 + drop  # one fails at 130 tokens, and one finds the vocabulary; 48: whole blocks


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    unmask.assert_causal(gpt2().cuda())
    assert check(gpt2().cuda()).obeys
    assert not check(TakesEmbeddings(causal=False).cuda()).obeys


@pytest.mark.parametrize("number_type", [torch.bfloat16, torch.float64])
def test_number_types(number_type: torch.dtype) -> None:
    unmask.assert_causal(gpt2().to(number_type))
    with pytest.raises(AssertionError):
        unmask.assert_causal(SAMPLES["sdpa"].make().to(number_type))


def test_a_trainer_calls_it_at_its_beginning_and_every_so_many_steps() -> None:
    module, leaks = gpt2(), SAMPLES["sdpa"].make()
    calls: list[Any] = []
    module.register_forward_hook(lambda *_: calls.append(1))
    handler = hf.trainer_callback.CallbackHandler([unmask.trainer_callback(every=10)], module, None, None, None)
    state, control = hf.TrainerState(), hf.TrainerControl()
    handler.on_train_begin(None, state, control)
    assert len(calls) == 2
    for state.global_step in range(1, 21):
        handler.on_step_end(None, state, control)
    assert len(calls) == 6
    handler.model = leaks
    with pytest.raises(AssertionError):
        handler.on_step_end(None, state, control)


@pytest.mark.parametrize("callback", [unmask.trainer_callback, unmask.lightning_callback])
def test_a_callback_that_would_fail_in_the_training_is_refused_before_it(callback: Any) -> None:
    for every in (0, "x", 1.5):
        with pytest.raises(ValueError, match=f"expected a number of steps from 1 to .*, got {every!r}"):
            callback(every=every)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        callback(nonsense=1)


def test_lightning_need_not_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Callback:
        """Stand-in for the class that is inherited if Lightning is installed."""

    callback = unmask.lightning_callback(every=2, network=lambda module: module.network)
    module = SimpleNamespace(network=SAMPLES["sdpa"].make())
    trainer = SimpleNamespace(global_step=1)  # counts the steps of all epochs; batch numbers restart
    callback.on_train_batch_end(trainer, module, None, None, 1)
    with pytest.raises(AssertionError):
        callback.on_train_start(trainer, module)
    trainer.global_step = 2
    with pytest.raises(AssertionError):
        callback.on_train_batch_end(trainer, module, None, None, 0)
    callback.on_train_batch_end(trainer, module, None, None, 1)  # the same step: gradients are accumulated
    trainer.global_step = 5  # two optimizers make two steps per batch
    with pytest.raises(AssertionError):
        callback.on_train_batch_end(trainer, module, None, None, 2)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", SimpleNamespace(Callback=Callback))
    monkeypatch.setattr(checking, "LIGHTNING", ("no_such_module", "pytorch_lightning"))
    assert isinstance(unmask.lightning_callback(), Callback)


def test_a_class_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OUTSIDE)
    assert unmask.check(f"{file}:Good").obeys
    assert not unmask.check(f"{file}:leaks").obeys
    file.write_text(OUTSIDE + "\ngood = Good()\ndef raises():\n    raise KeyError('no weights')\n")
    assert unmask.check(f"{file}:good").obeys
    with pytest.raises(unmask.CannotCheck, match=r"mine.py raised KeyError: 'no weights' where raises was made"):
        unmask.check(f"{file}:raises")
    for name, words in ((f"{file}:number", "number of mine.py to be a torch.nn.Module"), (f"{file}:none", "none of"),
                        (f"{tmp_path}/other.py:Good", "there is no file")):  # fmt: skip
        with pytest.raises(unmask.CannotCheck, match=words):
            unmask.check(name)
    plugins = ["-p", "unmask.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-c", "/dev/null"]
    test = tmp_path / "test_it.py"
    test.write_text("from mine import Good, leaks\ndef test_it(assert_causal): assert_causal(Good())\n")
    options = ["--causal", f"{file}:Good", "--causal", f"{file}:leaks", "--rootdir", str(tmp_path), str(test)]
    ran = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "1 failed, 2 passed" in ran.stdout
    assert "which its mask blocks" in ran.stdout


def test_the_json_follows_its_schema() -> None:
    schema = json.loads((ROOT / "docs" / "mask-check.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for key in ("sound", "sdpa", "narrow", "sound-pair"):
        found = json.loads(findings.as_json(check(SAMPLES[key].make())))
        jsonschema.validate(found, schema)
        assert set(schema["required"]) == set(found)
        assert schema["properties"]["schema_version"]["const"] == found["schema_version"] == findings.SCHEMA_VERSION
        assert set(schema["properties"]["findings"]["items"]["required"]) == set(findings.FINDING_FIELDS)


class SharesItsRow(ReadsAhead):
    """A module of which two processes compute half a row each, from keys of the whole row (context parallel)."""

    def __init__(self, *, local: bool) -> None:
        super().__init__(above=9999)
        self.local = local

    def forward(self, input_ids: Tensor) -> Tensor:
        rank, half = dist.get_rank(), (input_ids.shape[1] + 1) // 2
        ids = nn.functional.pad(input_ids, (0, 2 * half - input_ids.shape[1]))
        own = self.embedding(ids[:, rank * half : (rank + 1) * half]).contiguous()
        parts = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(parts, own)
        key = torch.arange(half) if self.local else torch.arange(2 * half)
        query = torch.arange(half) + (0 if self.local else rank * half)
        mask = (query[:, None] >= key).float()
        mask = torch.cat([mask, mask], 1) if self.local else mask  # the mask of each half uses positions in that half
        found = self.head(mask / mask.sum(-1, keepdim=True) @ torch.cat(parts, 1))
        halves = [torch.empty_like(found) for _ in range(2)]
        dist.all_gather(halves, found.contiguous())
        return torch.cat(halves, 1)[:, : input_ids.shape[1]]


def in_one_of_two(rank: int, meeting: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    unmask.assert_causal(nn.parallel.DistributedDataParallel(ReadsAhead(above=9999)))
    unmask.assert_causal(SharesItsRow(local=False))
    for broken in (nn.parallel.DistributedDataParallel(ReadsAhead()), SharesItsRow(local=True)):
        with pytest.raises(AssertionError, match="which its mask blocks"):
            unmask.assert_causal(broken)
    with torch.no_grad():
        assert check(nn.parallel.DistributedDataParallel(gpt2())).finding("reach").verdict == "obeys"
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a new process begins with the main module, which may be a page that Streamlit's tests have left there
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    torch.multiprocessing.spawn(in_one_of_two, (str(tmp_path / "meeting"),), nprocs=2)
