"""Tests of what the heads of Hugging Face networks read and write: the sums match, or a message states the reason.

They run a tiny random network of each family. The references are the outputs of its own modules, taken by hooks.
"""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from model.attribution.score_split import additions, carried, direct_effect, effect_on_logits, score_split
from model.errors import NotSupported
from model.huggingface import adapter
from model.huggingface.adapter import HuggingFaceModel
from model.masks import MaskSpec
from model.trace import Trace
from serving.settings import Settings
from tests.model.huggingface import families, test_families
from tests.model.huggingface.every_type import network_of
from tests.model.huggingface.family import Family

CLOSE = 1e-5
LINES = ["the cat sat on a mat and then it saw", "red ball near"]
MORE = {  # own code with rotary positions or ALiBi, a gate, parallel layers of two kinds, low-rank q and k, v in parts
    "gptj": ("token", None),
    "bloom": ("embedding", None),
    "qwen3_next": ("token", "linear attention + MLP"),
    "falcon_h1": ("token", "state space + MLP"),
    "llama4": ("token", None),
    "deepseek_v32": ("token", None),
    "diffllama": ("token", None),
}
NOT_EXACT = {
    "bert": "do more than add to the residual stream",  # its norms come after the sums
    "openai-gpt": "do more than add to the residual stream",
    "zamba": "does not leave the layer",
    "t5": "encoder-decoder",
}
ENDS = {  # the module whose output attention adds to the stream
    "gpt2": "attn",
    "gpt_neox": "attention",
    "gemma2": "post_attention_layernorm",
    "gemma3": "post_attention_layernorm",
    "olmo2": "post_attention_layernorm",
}
SOME = [name for name in families.DECODERS if name not in families.ALIKE]


def saved(name: str, folder: Path, loaded: dict[str, Family]) -> HuggingFaceModel:
    if name in families.ALL:
        return loaded[name].ours
    return adapter.load(str(test_families.saved(name, folder)), settings=Settings())


def run(model: HuggingFaceModel, spec: MaskSpec | None = None) -> Trace:
    return model.run(model.encode(LINES, "left"), spec)


def check_cells(model: HuggingFaceModel, trace: Trace, row: int, cells: list[tuple[int, int, int, int]]) -> tuple:
    """Assert that the terms of cells (layer, head, query, key) sum to the scores; return the last cell's sources."""
    for layer, head, query, key in cells:
        found, record = score_split(model, trace, row, layer, head, query, key), trace.layers[layer]
        assert found.terms is not None, found.why_not
        raw = float(trace.stages(layer, head, row).raw[query, key]) * found.scale
        assert found.score == pytest.approx(raw, abs=CLOSE)
        assert abs(found.terms.sum() - raw) <= CLOSE * max(abs(found.terms).sum(), 1)
        if record.terms.softcap is None:
            assert found.score + found.added == pytest.approx(
                float(trace.stages(layer, head, row).scaled[query, key]), abs=1e-4
            )
    return found.sources


@pytest.mark.parametrize("name", SOME)
def test_the_terms_of_a_cell_sum_to_its_score(name: str, loaded: dict[str, Family]) -> None:
    model = loaded[name].ours
    trace = run(model)
    sources = check_cells(model, trace, 0, [(2, 3, 8, 5), (1, 0, 4, 4)])
    check_cells(model, trace, 1, [(2, 2, 9, 8)])
    assert [one for one in sources if one.startswith("L0")] == [*(f"L0 H{head}" for head in range(4)), "L0 MLP"]


@pytest.mark.parametrize("name", MORE)
def test_other_code_is_split_too(name: str, tmp_path: Path, loaded: dict[str, Family]) -> None:
    model = saved(name, tmp_path, loaded)
    trace = run(model)
    last = trace.num_layers - 1
    sources = check_cells(model, trace, 0, [(last, 1, 8, 5)])
    first, kind = MORE[name]
    assert sources[0] == first
    assert f"L0 {kind or 'MLP'}" in sources


def test_alibi_is_a_source_of_its_own(tmp_path: Path, loaded: dict[str, Family]) -> None:
    """Bloom adds the slope of head 1 of 3 times the key's position: a term of its own, no product of q and k."""
    model = saved("bloom", tmp_path, loaded)
    trace = run(model)
    near, far = (score_split(model, trace, 0, 1, 1, 8, key) for key in (7, 2))
    assert near.added != 0
    assert near.added / far.added == pytest.approx(7 / 2)


@pytest.mark.parametrize("name", NOT_EXACT)
def test_where_it_is_not_exact_it_says_why(name: str, tmp_path: Path, loaded: dict[str, Family]) -> None:
    model = saved(name, tmp_path, loaded)
    trace = run(model)
    last = trace.num_layers - 1
    found = score_split(model, trace, 0, last, 1, 2, 2)
    assert found.terms is None
    assert NOT_EXACT[name] in found.why_not
    assert carried(model, trace, 0, trace.spec, last, 1, 2).added is None
    with pytest.raises(NotSupported, match=NOT_EXACT[name]):
        direct_effect(model, trace, 0, trace.spec, last, 1, 2)


def test_a_model_that_counts_positions_itself_is_not_called_nonlinear(tmp_path: Path) -> None:
    families.save_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    model = adapter.from_network(network_of("masked", "roformer"), tokenizer)
    assert "counts positions itself" in str(score_split(model, run(model), 0, 0, 1, 5, 2).why_not)


@pytest.mark.parametrize("name", SOME)
def test_all_heads_with_the_bias_are_the_attention_layer_s_output(name: str, loaded: dict[str, Family]) -> None:
    model = loaded[name].ours
    trace, layer, query = run(model, MaskSpec(causal=False)), 1, 8
    outputs: list[Tensor] = []
    ends = list(modules_named(model._stacks.network, ENDS.get(name, "self_attn")))
    hook = ends[layer].register_forward_hook(
        lambda _, __, made: outputs.append(made[0] if isinstance(made, tuple) else made)
    )
    frozen = model.frozen(trace, 0)
    hook.remove()
    each = [additions(frozen, trace, 0, trace.spec, layer, head, query) for head in range(trace.num_heads)]
    _, bias = frozen._written(layer, query)  # the bias of the output projection
    found, expected = torch.stack(each).sum((0, 1)) + bias, outputs[0][0, query].double()
    assert float(bias.abs().max()) > 0.01 or name not in ("gpt2", "gpt_neox", "opt", "phi")
    assert float((found - expected).abs().max()) <= CLOSE * max(float(expected.abs().max()), 1)


def modules_named(network: nn.Module, name: str) -> list[nn.Module]:
    return [module for path, module in network.named_modules() if path.endswith(f".{name}")]


@pytest.mark.parametrize("name", SOME)
def test_what_all_sources_add_to_the_logits_makes_them(name: str, loaded: dict[str, Family]) -> None:
    """The rest comes from biases of the final norm and the LM head, equal at each position; a soft-cap is undone."""
    model = loaded[name].ours
    trace = run(model)
    frozen, gives = model.frozen(trace, 0), []
    for query in (8, 3):
        sources = frozen.stream([query], None)
        each = frozen.logits(query, sources.parts[:, 0])
        index = sources.names.index("L1 H2")
        effect = effect_on_logits(frozen, trace, 0, trace.spec, 1, 2, query)
        torch.testing.assert_close(each[index], effect, atol=1e-4, rtol=0)
        logits = trace.logits[0, query].double()
        if frozen.caps_logits:
            logits = 5 * torch.atanh(logits / 5)
        gives.append(logits - each.sum(0))
    assert frozen.caps_logits == (name == "gemma2")
    torch.testing.assert_close(gives[0], gives[1], atol=1e-3 if name == "gemma2" else 1e-4, rtol=1e-4)
    if name not in ("gpt2", "gpt_neox", "opt", "phi"):
        assert float(gives[0].abs().max()) <= (1e-3 if name == "gemma2" else 1e-4)


def test_a_run_is_not_touched_by_being_asked(loaded: dict[str, Family]) -> None:
    model = loaded["gemma2"].ours
    before = run(model).logits
    trace = run(model)
    score_split(model, trace, 0, 2, 1, 8, 5)
    direct_effect(model, trace, 0, trace.spec, 2, 1, 8)
    assert torch.equal(run(model).logits, before)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_what_rounding_hides_is_said_to_be_hidden_by_it(precision: str, tmp_path: Path) -> None:
    model = adapter.load(str(families.save("llama", tmp_path)), settings=Settings(precision=precision))
    trace = model.run(model.encode(["the cat sat on a mat"]))
    with pytest.raises(NotSupported, match=f"lost in the rounding of {precision}: choose float32"):
        direct_effect(model, trace, 0, trace.spec, 1, 2, trace.batch.real(0).stop - 1)
    gpt2 = adapter.load(str(families.save("gpt2", tmp_path / "gpt2")), settings=Settings(precision=precision))
    found = score_split(gpt2, gpt2.run(gpt2.encode(["the cat sat on a mat"])), 0, 0, 1, 3, 1)
    assert f"lost in the rounding of {precision}: choose float32" in found.why_not
