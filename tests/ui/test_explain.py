"""The sentences around the pictures (ui/explain.py)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import Gemma4TextConfig, MistralConfig

from model import catalog
from model.base import tokenize
from model.heads.view import HeadView
from model.text import truncation_message
from serving.settings import Settings
from tests.model.huggingface import families, more_families
from ui import explain, run_view
from ui.sidebar.models import model_found
from viz.numbers import leak_shares


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "marian",
            ", 3 encoder + 2 decoder + 2 cross layers, 3 encoder + 4 decoder + 4 cross heads, context 47, "
            "computed in float32 on CPU.",
        ),
        ("t5", ", 3 encoder + 2 decoder + 2 cross layers, 4 heads, context 512, computed in float32 on CPU."),
        ("gemma2", ", 3 layers, 4 heads sharing 2 key-value heads, context 47, computed in float32 on CPU."),
        ("jamba", ", 1 attention layer, 4 heads sharing 2 key-value heads, context 47, computed in float32 on CPU."),
        ("bert", ", 3 layers, 4 heads, context 47, computed in float32 on CPU."),
    ],
)
def test_what_was_found_in_a_model(tmp_path: Path, name: str, sentence: str) -> None:
    model = catalog.load(str(families.save(name, tmp_path, more_families.ALL.get(name))), settings=Settings())
    assert sentence in model_found(model)


def test_one_of_each_is_in_the_singular(tmp_path: Path) -> None:
    config = MistralConfig(**families.WIDE | {"num_hidden_layers": 1, "num_key_value_heads": 1}, sliding_window=3)
    families.save("mistral", tmp_path, config)
    found = model_found(catalog.load(str(tmp_path), settings=Settings()))
    assert ", 1 layer, 4 heads sharing 1 key-value head, context " in found
    assert "(3 positions, in 1 layer)" in found


def test_key_value_heads_are_said_where_every_layer_has_as_many(tmp_path: Path) -> None:
    """Gemma 4's layers with a window may have another number of them than those without."""
    sizes = families.WIDE | {"head_dim": 8, "num_hidden_layers": 2}
    config = Gemma4TextConfig(
        **sizes, num_global_key_value_heads=1, global_head_dim=16, attention_k_eq_v=True, sliding_window=4,
        layer_types=["sliding_attention", "full_attention"], hidden_size_per_layer_input=0, num_kv_shared_layers=0,
    )  # fmt: skip
    families.save("gemma4_text", tmp_path, config)
    assert ", 2 layers, 4 heads, context 47, " in model_found(catalog.load(str(tmp_path), settings=Settings()))


def test_what_was_found_in_our_own_model() -> None:
    assert ", 6 layers, 6 heads, context " in model_found(catalog.load("story"))


def test_the_mean_leak_is_that_of_the_heads_that_have_one_as_in_the_report() -> None:
    future = np.array([[0.25, np.nan, 0.5]], np.float32)  # the second head attends to nothing
    one, every = leak_shares(future, np.full_like(future, np.nan), 0, 2)
    assert (one.future, every.future) == (0.5, 0.375)
    assert np.isnan(every.padding)


def test_padding_that_an_ordinary_token_fills_is_no_earlier_copy_in_the_sentence() -> None:
    """The padding of the second row is the same token as its third one; no other token of the row occurs twice."""
    model = catalog.load("story")
    batch, row = model.encode(["The dog saw a big cat and ran to the old man.", "A cat sat on Tom"], "left"), 1
    begin, ids = batch.real(row).start, batch.ids.clone()
    ids[row, :begin] = ids[row, begin + 2]
    now, _ = run_view.run_pair(model, replace(batch, ids=ids), model.standard, row, "self")
    found = explain.scene(now, "model", "L0 H0", now.head(0, 0), 0, 0)
    assert found.repeats == 0
    assert np.isnan(found.induction)


def test_a_mask_that_blocks_nothing_is_not_what_blocks() -> None:
    weights = np.tril(np.full((2, 2), 0.5, np.float32))
    view = HeadView(
        weights, weights, {"causal": weights == 0, "window": np.zeros((2, 2), bool)}, ["a", "b"], ["a", "b"]
    )
    assert "25.0% of the cells are blocked, by causal." in explain.head_alt("L0 H0", view, False)
    nothing = replace(view, weights=np.zeros((2, 2), np.float32), blocked={"drawn": np.ones((2, 2), bool)})
    assert "Every weight is 0. 100% of the cells are blocked" in explain.head_alt("L0 H0", nothing, False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("the cat sat", None),
        ("the cat sat on the mat 猫", None),  # three of eleven tokens are bytes
        ("猫在", "6 of its 7 tokens are single bytes, such as ⟨E7⟩."),
        ("the cat\n猫", "most of the characters of row 2: 3 of its 4 tokens are single bytes"),
    ],
)
def test_a_text_that_turns_into_bytes_is_said_to(text: str, sentence: str | None) -> None:
    model = catalog.load("story")
    notes = explain.limits(model, tokenize(model, text, "right", None, most_rows=5))
    assert notes == [] if sentence is None else sentence in notes[0]


def test_one_character_that_is_cut_is_one() -> None:
    model = catalog.load("story")
    reading = tokenize(model, "the cat", "right", None, most_rows=5)
    for cut, text in (("x", "its last character is cut: “x”."), ("xy", "its last 2 characters are cut, from “xy” on.")):
        words = explain.limits(model, replace(reading, batch=replace(reading.batch, cut=(cut,))))[0]
        assert words.startswith("story reads at most 256 tokens here. ")
        assert text in words
    assert "the last character of the text is cut: “.”." in truncation_message(".", 256)


@pytest.mark.parametrize(
    ("lines", "targets", "attention", "expected"),
    [
        (["3 Mar 2021", "the 3rd of March 2021"], None, "decoder", "source"),
        (["3 Mar 2021", "the 3rd of March 2021"], None, "cross", ""),
        (["3 Mar 2021", "4 Mar 2021"], None, "decoder", ""),
        (["3 Mar 2021", "4 Mar 2021"], ["2021", "2021-03"], "encoder", "target"),
    ],
)
def test_padding_of_the_other_text_is_known(
    lines: list[str], targets: list[str] | None, attention: str, expected: str
) -> None:
    model = catalog.load("dates")
    spec = replace(model.standard, padding=False)
    now, _ = run_view.run_pair(model, model.encode(lines, "left", targets), spec, 0, attention)
    found = explain.scene(now, "model", now.name(0, 0), now.head(0, 0), 0, 0)
    assert found.padded_text == expected
    assert found.has_padding == (attention == "cross")
