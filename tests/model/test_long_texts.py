"""Tests of long texts in blocks of queries: equal to a run at once under every mask, and no tensor of T × T."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from model import catalog, masks
from model.base import Model
from model.heads import view as heads
from model.heads.survey import survey
from model.heads.view import coarser, cropped, head_part, head_view
from model.masks import MaskSpec, Stroke
from model.trace import Trace
from serving.settings import Settings
from tests.model.huggingface import families

TEXTS = ["the cat sat on a mat and then it saw one big red ball near the old mat and the cat sat on it", "a cat sat"]
SPECS = (
    MaskSpec(),
    MaskSpec(causal=False),
    MaskSpec(sliding=3, padding_queries=True),
    MaskSpec(documents="and", prefix=3, sinks=1, stride=2),
    MaskSpec(prefix_lm=4, block_causal=5, layers=(1,), heads=(0,)),
    MaskSpec(drawn=(Stroke("block", 5, 1, 11, 3), Stroke("erase", 6, 1, 6, 9), Stroke("open", 2, 7, 3, 12))),
)


@pytest.fixture(scope="module", params=["llama", "gemma2", "gpt_oss"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Return a model with grouped queries, with windows and a soft-cap, or with learned sinks."""
    folder = families.save(request.param, tmp_path_factory.mktemp(request.param))
    return catalog.load(str(folder), settings=Settings())


def numbers(trace: Trace) -> list[np.ndarray]:
    found = survey(trace, 0)
    return [trace.logits.numpy(), found.thumbnails, found.blocked, *found.shares.values()]


@pytest.mark.parametrize("pad_side", ["left", "right"])
def test_by_blocks_all_is_as_it_is_at_once(pad_side: str, model: Model) -> None:
    batch = model.encode(TEXTS, pad_side)
    tokens = batch.ids.shape[1]
    for spec in SPECS:
        whole = model.run(batch, spec)
        expected = numbers(whole)
        views = [head_view(whole, row, spec, 1, 2) for row in (0, 1)]
        parts = [coarser(cropped(one, (4, 17), (2, tokens)), most=4) for one in views]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(masks, "LONG", 7)
            patch.setattr("model.attention.BLOCK", 5)
            patch.setattr("model.trace.MIN_ROWS", 5)
            patch.setattr("model.trace.BLOCK_BYTES", 1)
            patch.setattr(heads, "BLOCK_ROWS", 5)
            trace = model.run(batch, spec)
            for one, other in zip(expected, numbers(trace), strict=True):
                real = batch.keep.numpy() if one.ndim == 3 and one.shape[:2] == batch.keep.shape else ...
                assert np.allclose(one[real], other[real], atol=1e-5, equal_nan=True)
            for row in (0, 1):
                exact = head_part(trace, row, spec, 1, 2, (4, 17), (2, tokens))
                wanted = cropped(views[row], (4, 17), (2, tokens))
                assert np.allclose(exact.weights, wanted.weights, atol=1e-6)
                assert (exact.step, exact.first, exact.first_key) == (1, 4, 2)
                assert (exact.queries, exact.keys) == (wanted.queries, wanted.keys)
                assert exact.blocked.keys() == wanted.blocked.keys()
                assert all((exact.blocked[name] == wanted.blocked[name]).all() for name in wanted.blocked)
                coarse = head_part(trace, row, spec, 1, 2, (4, 17), (2, tokens), most=4)
                assert np.allclose(coarse.weights, parts[row].weights, atol=1e-6)
                for name in ("step", "size", "queries", "keys"):
                    assert getattr(coarse, name) == getattr(parts[row], name)


class _Largest(TorchDispatchMode):
    """Recorder of the largest number of elements in one tensor's own memory."""

    found = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        result = function(*arguments, **(options or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor):
                self.found = max(self.found, one.untyped_storage().nbytes() // one.element_size())
        return result


def test_nothing_takes_t_times_t_numbers(tmp_path: Path) -> None:
    tokens = 4500  # more than masks.LONG
    config = families.hf.LlamaConfig(**families.GROUPED | {"max_position_embeddings": tokens, "num_hidden_layers": 2})
    families.random_network("llama", config).save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path, "$A")
    model = catalog.load(str(tmp_path), settings=Settings(tokens=tokens))
    words = (families.WORDS * (tokens // len(families.WORDS) + 1))[:tokens]
    batch = model.encode([" ".join(words)])
    assert batch.ids.shape[1] == tokens
    with _Largest() as largest:
        for spec in (model.standard, MaskSpec(sliding=700)):
            trace = model.run(batch, spec)
            survey(trace)
            assert head_part(trace, 0, spec, 1, 2, (4000, 4100), (3950, 4050)).weights.shape == (100, 100)
            assert head_part(trace, 0, spec, 1, 2, (0, tokens), (0, tokens)).weights.shape == (125, 125)
    assert largest.found < tokens**2 / 4
