"""Tests of a training's checkpoints in Python: one by its step, a text measured over all, runs before and after one."""

import copy
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch.nn.utils import prune

import unmask
from model import catalog
from model.huggingface.checkpoint_files import MAX_LOGGED
from tests.model.huggingface import families

STEPS = (3, 20)
TEXT = "the cat sat on a mat and the cat sat"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in STEPS:
        torch.manual_seed(step)
        families.random_network("llama", families.ALL["llama"]).save_pretrained(tmp_path / f"checkpoint-{step}")
    families.save_tokenizer(tmp_path, "$A")
    return tmp_path


def test_every_step_is_measured_as_the_model_alone(folder: Path) -> None:
    found = unmask.checkpoints(str(folder))
    assert found.steps == STEPS
    over = found.measure(TEXT)
    assert {shares.shape for shares in over.shares.values()} == {(2, 3, 4)}
    for index, step in enumerate(STEPS):
        run = unmask.load(str(folder), step=step).run(TEXT)
        assert over.loss[index] == pytest.approx(float(run.trace.losses().nanmean()), rel=1e-5)
        assert over.shares["induction"][index] == pytest.approx(run.measures()["induction"], abs=1e-6)
    assert list(over.to_dataframe().index) == list(STEPS)
    assert "<table" in over._repr_html_()
    head = over.head(1, 2)
    assert len(head.view.data) == 6  # five patterns and the loss
    assert head.to_dataframe().columns.tolist() == ["line", "step", "value"]
    np.testing.assert_array_equal(head.numpy()[-1], over.loss)
    assert "https://" not in head._repr_html_()
    assert all(head.save(folder / f"head.{kind}").stat().st_size for kind in ("html", "svg", "png", "pdf"))
    assert unmask.load(str(folder)).model.name.endswith("checkpoint-20")
    with pytest.warns(UserWarning, match="reads at most") as warned:
        found.measure(TEXT * 20)
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]


def test_a_pattern_that_no_query_is_asked_about_is_not_0(folder: Path) -> None:
    table = unmask.checkpoints(str(folder)).measure("the cat sat on a mat").to_dataframe()
    assert table["induction"].isna().all()
    assert table["previous"].gt(0).all()


def test_what_the_trainer_logged_is_read_with_care_and_drawn(folder: Path) -> None:
    good = [{"step": 10, "loss": 2.5, "epoch": 1}, {"step": 5, "loss": 3.0}, {"step": 10, "eval_loss": 2.75}]
    odd = [7, {"step": "3", "loss": 1.0}, {"step": 4}, {"step": -1, "loss": 1.0}, {"step": 6, "loss": "NaN"}]
    odd += [{"step": 7, "loss": float("nan")}, {"step": 8, "loss": 10**400}, {"step": True, "loss": 1.0}]
    state = folder / "checkpoint-20" / "trainer_state.json"
    state.write_text(json.dumps({"log_history": good + odd}))
    over = unmask.checkpoints(str(folder)).measure(TEXT)
    assert repr(over).endswith(f"loss {over.loss[0]:.2f} → {over.loss[-1]:.2f} nats over {len(over.steps)} checkpoints")
    assert str(replace(over, numbers=(3, 5)).head(1, 0)).startswith("L5 H0 over"), (
        "by the network's number of the layer"
    )
    assert over.logged == {"loss": [(5, 3.0), (10, 2.5)], "eval_loss": [(10, 2.75)]}
    lines = {line.name: list(line.y) for line in over.head(1, 2).view.data}
    for wrong in ((-1, 0), (0, 9), ("0", 0)):
        with pytest.raises(ValueError, match="expected a"):
            over.head(*wrong)
    assert lines["training loss, as logged"] == [3.0, 2.5]
    assert lines["evaluation loss, as logged"] == [2.75]
    many = [{"step": step, "loss": 1.0} for step in range(3 * MAX_LOGGED)]
    state.write_text(json.dumps({"log_history": many}))
    assert 0 < len(catalog.logged_losses(str(folder))["loss"]) <= MAX_LOGGED
    for broken in ("", "[]", '{"log_history": 5}', "[" * 100_000):
        state.write_text(broken)
        assert not any(catalog.logged_losses(str(folder)).values())
    state.unlink()
    state.symlink_to(folder / "elsewhere.json")
    (folder / "elsewhere.json").write_text(json.dumps({"log_history": good}))
    assert not any(catalog.logged_losses(str(folder)).values())


def test_what_is_not_there_is_said(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"out of \[3, 20\], got 4"):
        unmask.load(str(folder), step=4)
    with pytest.raises(ValueError, match=r"expected a folder of checkpoints"):
        unmask.checkpoints("story")
    with pytest.raises(ValueError, match=r"expected a folder of checkpoints .*, got None"):
        unmask.checkpoints(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected a text, got \['a', 'b'\]"):
        unmask.checkpoints(folder).measure(["a", "b"])  # type: ignore[arg-type]


def in_memory(name: str = "gpt2", config: Any = None) -> tuple[Any, Any]:
    """Return a random network and the model loaded from it."""
    network = families.random_network(name, config or families.ALL.get(name))
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=families.word_tokenizer("<s> $A"), pad_token="<pad>")
    return network, unmask.load(network, tokenizer, name="mine")


SGD = partial(torch.optim.SGD, lr=0.5)
FUSED = partial(torch.optim.AdamW, lr=0.01, fused=True)  # Trainer's default, which does not raise the weights' versions


@pytest.mark.parametrize("optimizer", [SGD, FUSED])
def test_a_run_does_not_predict_with_weights_that_it_did_not_have(optimizer: Any) -> None:
    network, model = in_memory()
    report = unmask.report(model.run(TEXT))
    read, other = model.run(TEXT), model.run(TEXT)
    losses, weights, merged = read.losses.copy(), read.numpy(), other.merged("words")
    ids = read.trace.batch.ids
    network(input_ids=ids, labels=ids).loss.backward()
    optimizer(network.parameters()).step()
    after = model.run(TEXT)
    assert f"{np.nanmean(losses):.2f}" in report._repr_html_()
    calls: list[Callable[[], Any]] = [
        lambda: other.losses, lambda: merged.losses, lambda: other.logits, other.next_token, other.logit_lens,
        lambda: other.residual(1), lambda: other.direct_effect(0, 0), lambda: other.value_weighted(0, 0),
        lambda: other.score_split(0, 0, 1, 1), lambda: other.ablate([(0, 0)]), other.ablation, other.served,
        lambda: other.patch(after), lambda: after.patch(other), lambda: other.difference(after),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match="the network's weights have changed since this run"):
            call()
    np.testing.assert_array_equal(read.losses, losses)  # read before the change
    np.testing.assert_array_equal(read.merged("words").losses, losses)
    np.testing.assert_array_equal(other.numpy(), weights)
    after.merged("words").difference(read)
    read.losses[:] = 0  # this is a copy
    change = f"{np.nanmean(losses):.2f} → {np.nanmean(after.losses):.2f}"
    assert f"Mean loss: {change}" in after.difference(read)._repr_html_()
    np.testing.assert_array_equal(other.under({}).losses, after.losses)


@pytest.mark.parametrize("name", ["gpt2", "gpt_oss", "gemma2", "bloom"])
def test_a_run_keeps_its_attention_whatever_becomes_of_the_weights(name: str) -> None:
    """gpt-oss has sinks, a parameter that attention itself reads."""
    network, model = in_memory(name)
    run = model.run(TEXT)
    before = run.numpy().copy()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1.5).add_(0.3)
    np.testing.assert_array_equal(run.numpy(), before)


def test_a_run_notices_what_is_written_into_one_head() -> None:
    network, model = in_memory()
    run, weight = model.run(TEXT), network.transformer.h[0].attn.c_attn.weight
    width = weight.shape[1] // 3 // network.config.n_head
    weight.data[:, -width:] *= 20  # bypasses the version counter; the last head's values
    with pytest.raises(ValueError, match="have changed since"):
        run.next_token()


def test_a_copy_is_of_the_copied_network() -> None:
    network, model = in_memory()
    run = model.run(TEXT)
    kept, twin, losses = copy.deepcopy(run), copy.deepcopy(model), run.losses.copy()
    del vars(run)["_losses"]
    with torch.no_grad():
        network.transformer.wte.weight.mul_(2)
    np.testing.assert_array_equal(copy.deepcopy(kept).losses, losses)
    with pytest.raises(ValueError, match="have changed since"):
        copy.deepcopy(run).next_token()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(twin.run(TEXT).losses, losses)


@pytest.mark.parametrize("moved", ["double", "half"])
def test_a_run_does_not_use_weights_of_another_type(moved: str) -> None:
    network, model = in_memory()
    run = model.run(TEXT)
    getattr(network, moved)()
    for call in (run.next_token, run.logit_lens):
        with pytest.raises(ValueError, match="have changed since"):
            call()
    network.float()
    np.testing.assert_array_equal(model.run(TEXT).losses.shape, run.trace.batch.ids.shape[1:])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_circuits_are_of_the_weights_as_they_are(name: str) -> None:
    network, model = in_memory(name)
    model.ov(1, 0)
    ids, optimizer = model.run(TEXT).trace.batch.ids, FUSED(network.parameters())
    for _ in range(3):
        network(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    fresh = unmask.load(network, model.tokenizer, name="mine")
    np.testing.assert_array_equal(model.ov(1, 0, [1, 2, 3]).numpy(), fresh.ov(1, 0, [1, 2, 3]).numpy())
    assert repr(model.qk(1, 0)) == repr(fresh.qk(1, 0))


def test_no_circuits_of_weights_with_an_adapter() -> None:
    class WithAdapter(torch.nn.Module):
        def __init__(self, base: torch.nn.Module) -> None:
            super().__init__()
            self.base, self.weight, self.bias = base, base.weight, base.bias

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + 0.1

    network, model = in_memory("llama")
    network.model.layers[1].self_attn.v_proj = WithAdapter(network.model.layers[1].self_attn.v_proj)
    model = unmask.load(network, model.tokenizer, name="mine")
    model.run(TEXT)
    with pytest.raises(ValueError, match=r"test_training_steps\.WithAdapter also computes with others"):
        model.ov(1, 0)


def test_a_run_has_the_buffers_of_the_network() -> None:
    config = hf.Glm4MoeConfig(
        vocab_size=families.ALL["llama"].vocab_size, hidden_size=32, intermediate_size=48, moe_intermediate_size=16,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8, n_routed_experts=8,
        num_experts_per_tok=2, first_k_dense_replace=1,
    )  # fmt: skip
    network, model = in_memory("glm4_moe", config)
    old, others = model.run(TEXT), network.state_dict()
    routers = [name for name in others if name.endswith("e_score_correction_bias")]
    network.load_state_dict(others | {name: torch.randn_like(others[name]) for name in routers})
    ids = old.trace.batch.ids
    theirs = network.eval()(input_ids=ids, labels=ids).loss
    assert np.nanmean(model.run(TEXT).losses) == pytest.approx(float(theirs.detach()), abs=1e-5)
    with pytest.raises(ValueError, match="have changed since"):
        old.next_token()


def test_a_pruned_network_is_run_as_it_is() -> None:
    network, model = in_memory("llama")
    before = model.run(TEXT).losses
    prune.random_unstructured(network.model.layers[1].self_attn.v_proj, "weight", 0.5)
    run = unmask.load(network, model.tokenizer, name="mine").run(TEXT)
    ids = run.trace.batch.ids
    theirs = network.eval()(input_ids=ids, labels=ids).loss
    assert np.nanmean(run.losses) == pytest.approx(float(theirs.detach()), abs=1e-5)
    assert not np.allclose(run.losses, before, equal_nan=True)


def test_a_text_without_losses_is_not_said_to_have_some(folder: Path) -> None:
    assert repr(unmask.checkpoints(folder).measure("cat")) == f"{folder}: 2 checkpoints"
    assert "loss" in repr(unmask.checkpoints(folder).measure(TEXT))


def test_a_check_leaves_a_network_as_it_was() -> None:
    network, model = in_memory()
    network.requires_grad_(False)
    run, names = model.run(TEXT), set(vars(network))
    run.check()
    ids = run.trace.batch.ids
    assert not network(input_ids=ids).logits.requires_grad
    assert set(vars(network)) == names
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run(TEXT)


def test_a_network_that_diverged_is_said_to() -> None:
    network, model = in_memory()
    with torch.no_grad():
        network.transformer.h[1].attn.c_proj.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"numbers that are not finite \(.*c_proj.weight\)"):
        model.run(TEXT)
