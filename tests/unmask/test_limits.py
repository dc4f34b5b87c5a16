"""Tests of how many tokens a model reads: up to its own limit, the setting's, and what a run may keep."""

import re
from pathlib import Path
from typing import Any

import pytest

import unmask
from model import base
from model.huggingface import adapter
from tests.model.huggingface.families import random_network, save, word_tokenizer
from unmask.notebook import LoadedModel

CONTEXT = 47  # of the Llama; the tokenizer in its folder adds a token
TEXT = "cat " * 60


@pytest.fixture(params=["folder", "memory"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, ...]:
    memory = request.param == "memory"
    return (random_network("llama"), word_tokenizer()) if memory else (save("llama", tmp_path),)


def words_of(model: LoadedModel) -> tuple[int, str]:
    """Return how many tokens of a text that is too long are read, and the warning."""
    with pytest.warns(UserWarning, match="reads at most") as warned:
        run = model.run(TEXT)
    return len(run.ids), str(warned[0].message)


@pytest.mark.parametrize(("limit", "set_to", "read"), [(None, 20, 20), (40, 20, 40), (20, 40, 20), (99, 20, CONTEXT)])
def test_the_argument_counts_before_the_setting(
    source: tuple[Any, ...], limit: int | None, set_to: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNMASK_TOKENS", str(set_to))
    model = unmask.load(*source, tokens=limit)
    tokens, words = words_of(model)
    assert tokens == read
    assert f"The model reads at most {read} tokens here: the last " in words
    assert model.run(ids=[5] * read).ids.tolist() == [5] * read
    more = "unmask.load(…, tokens=47) or UNMASK_TOKENS=47 reads up to 47"
    assert words.endswith(f" on. {more}." if read < CONTEXT else " on.")
    text = rf"^expected 1 to {read} ids in each row, got \[48\]{re.escape(f': {more}') if read < CONTEXT else ''}$"
    with pytest.raises(ValueError, match=text):
        model.run(ids=[5] * 48)
    with pytest.raises(ValueError, match=rf"^expected 1 to {read} ids in each row, got \[0\]$"):
        model.run(ids=[[]])


def test_no_more_tokens_are_promised_than_a_run_may_keep(
    source: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (adapter, base):
        monkeypatch.setattr(module, "TRACE_BYTES", 1)
    monkeypatch.setattr(adapter, "MIN_CONTEXT", 20)
    tokens, words = words_of(unmask.load(*source))
    assert tokens == 20
    assert "tokens=" not in words
    assert words.endswith(" on. Unmask keeps at most 256 MiB of queries, keys and values.")


def test_a_number_of_tokens_is_one(source: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"tokens: expected .*16.*, got 3"):
        unmask.load(*source, tokens=3)
