"""The residual stream and the heads of transformers' networks: the logit lens ends in the model's own logits, a head
turned off is one that may look at nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from model.errors import NotSupported
from model.heads.ablation import AblatedHeads, layer_effects, outcome
from model.heads.layers import logit_lens
from model.huggingface import adapter, recording
from model.huggingface.recording import ResidualHooks
from model.masks import MaskSpec, Stroke
from serving.settings import Settings
from tests.model.huggingface import families, more_families
from tests.model.huggingface.family import Family

NOTHING = (Stroke("block", 0, 0, 99, 99),)
OTHERS = ("gptj", "bloom", "openai-gpt")  # attention of their own code


@contextmanager
def called(modules: list[nn.Module]) -> Iterator[list[str]]:
    """The kinds of those that are called within it."""
    seen: list[str] = []
    hooks = [one.register_forward_hook(lambda module, *_: seen.append(type(module).__name__)) for one in modules]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("causal", [True, False])
def test_the_last_reading_is_the_model_s_own(family: Family, causal: bool) -> None:
    batch = family.batch("left")
    spec = MaskSpec(causal=causal)
    for row in range(3):
        found = logit_lens(family.ours, batch, spec, row, range(batch.ids.shape[1]))
        layers = family.ours.describe().layers
        assert len(found.ids) == 1 + layers.get("decoder", layers.get("self", 0))
        shares = family.ours.run(batch.rows([row]), spec).logits[0].softmax(-1).topk(5).values
        np.testing.assert_allclose(found.probabilities[-1], shares.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_code_of_its_own_is_read_too(name: str, tmp_path: Path) -> None:
    model = adapter.load(str(families.save(name, tmp_path, more_families.OWN_CODE[name])), settings=Settings())
    batch = model.encode(["the cat sat on a mat and then it saw"])
    found = logit_lens(model, batch, MaskSpec(), 0, range(7))
    shares = model.run(batch).logits[0, :7].softmax(-1).topk(5).values
    np.testing.assert_allclose(found.probabilities[-1], shares.numpy(), atol=1e-5)
    assert not np.allclose(found.probabilities[0], found.probabilities[-1], atol=1e-3)


def test_what_a_network_does_after_its_last_layer_is_found(loaded: dict[str, Family]) -> None:
    """GPT-2's final norm; OPT's, and the projection behind it; BERT, normalised within its layers, does nothing."""
    for name, wanted in (
        ("gpt2", ["LayerNorm"]),
        ("opt", ["LayerNorm", "Linear"]),
        ("bert", []),
        ("llama", ["LlamaRMSNorm"]),
    ):
        family = loaded[name]
        batch = family.batch("none")
        found = family.ours.residuals(batch, MaskSpec())
        stack = family.ours._stacks.stack  # type: ignore[union-attr]
        after = [one for one in stack.modules() if not list(one.children())]
        with torch.inference_mode(), called(after) as seen:
            found.final(found.streams[0])
        assert [one for one in seen if one != "Dropout"] == wanted, name


def test_a_head_off_is_one_that_may_look_at_nothing(decoder: Family) -> None:
    batch, model = decoder.batch("left"), decoder.ours
    off = MaskSpec(drawn=NOTHING, layers=(1,), heads=(2,))
    query = batch.real(1).stop - 1
    expected = model.run(batch, off).logits[1, query].log_softmax(-1)
    found = outcome(model, batch, MaskSpec(), 1, query, AblatedHeads(((1, 2),)), 9)
    assert found.log_probability == pytest.approx(float(expected[9]), abs=1e-4)
    before = outcome(model, batch, MaskSpec(), 1, query, AblatedHeads(()), 9).log_probability
    effects = layer_effects(model, batch, MaskSpec(), 1, query, 9, 1, AblatedHeads(()))
    assert effects[2] == pytest.approx(before - found.log_probability, abs=1e-4)
    assert len(set(effects.round(6).tolist())) == 4


@pytest.mark.parametrize("name", families.PAIRS)
@pytest.mark.parametrize("attention", ["encoder", "decoder"])
def test_either_stack_s_heads_can_be_off(loaded: dict[str, Family], name: str, attention: str) -> None:
    family = loaded[name]
    batch = family.batch("right")
    query = batch.real(0).stop - 2
    one, other = (
        outcome(family.ours, batch, MaskSpec(), 0, query, AblatedHeads(heads, attention=attention), 9)
        for heads in ((), ((1, 0),))
    )
    assert abs(one.log_probability - other.log_probability) > 1e-6


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("longer", ["source", "target"])
@pytest.mark.parametrize("attention", ["encoder", "decoder", "cross"])
def test_the_mean_of_a_head_is_over_real_queries(
    loaded: dict[str, Family], attention: str, longer: str, side: str
) -> None:
    model, long, short = loaded["t5"].ours, "the cat sat on the mat and saw", "a dog sat"
    texts, targets = (
        ([long, short], ["on it", "the cat saw it"]) if longer == "source" else (["on", short], [long, "the cat saw"])
    )
    off = AblatedHeads(((1, 2),), "mean", attention=attention)
    batch = model.encode(texts, side, targets)
    alone, real = batch.without_padding(1), batch.real(1)
    found = outcome(model, batch, MaskSpec(), 1, real.stop - 1, off, 9)
    expected = outcome(model, alone, MaskSpec(), 0, alone.ids.shape[1] - 1, off, 9)
    np.testing.assert_allclose(found.losses[real], expected.losses, atol=1e-4)
    assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-4)


def test_a_network_that_does_something_else_after_its_layers_is_refused() -> None:
    stack = nn.Module()
    stack.layers = nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 5)])
    stack.norm = nn.LayerNorm(5)
    hooks = ResidualHooks(stack, "layers")
    x = torch.arange(15.0).reshape(1, 3, 5)
    with torch.inference_mode(), hooks.reading() as read:
        last = stack.layers[1](stack.layers[0](x))
        states = stack.norm(last)
        found = recording.residuals(read, states).final(last)
    np.testing.assert_allclose(found.numpy(), states.numpy())
    with torch.inference_mode(), pytest.raises(NotSupported, match="follows its last layer"):
        recording.residuals(read, states * 1.01)
    with pytest.raises(NotSupported, match="not a list"), ResidualHooks(stack, None).reading():
        pass


def test_nothing_is_read_of_other_runs() -> None:
    stack = nn.Module()
    stack.layers = nn.ModuleList([nn.Linear(5, 5)])
    hooks = ResidualHooks(stack, "layers")
    with hooks.reading() as read:
        pass
    stack.layers[0](torch.zeros(1, 2, 5))
    assert not read.streams
