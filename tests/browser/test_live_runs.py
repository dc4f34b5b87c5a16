"""Tests of runs on the page that contains the model: late runs, runs of another text, and another tokenizer."""

from pathlib import Path

import torch
from playwright.sync_api import Page, expect
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import unmask
from model import catalog
from model.gpt2 import browser_model, save_transformer
from model.masks import MaskSpec
from model.transformer import Transformer, TransformerConfig
from tests.browser.test_live_controls import ROWS, TEXT, cell, show
from tests.browser.test_live_page import HELD, Open, file, open_page, ready  # noqa: F401 - fixtures
from unmask.__main__ import main
from viz.saved.live import live_page


def run_of(page: Page, text: str) -> None:
    page.locator("#text").fill(text)
    page.get_by_role("button", name="Run").click()


def test_an_emptied_text_is_asked_for_whatever_becomes_of_its_run(open_page: Open) -> None:  # noqa: F811
    page = open_page()
    page.evaluate(HELD)
    run_of(page, "The dog ran")
    page.evaluate("oneIsHeld()")
    run_of(page, "")
    page.evaluate("letGo()")
    page.evaluate("unmask.run('The cat')")  # the worker answers requests in order
    expect(page.locator("#status")).to_have_text("Type a text.")
    expect(page.locator("#cancel")).to_be_disabled()
    show(page, "The dog ran")


def test_one_layer_s_weights_are_of_the_text_that_is_shown(open_page: Open) -> None:  # noqa: F811
    """While runs of another text are in progress."""
    page = open_page()
    show(page, TEXT)
    page.get_by_label("Causal", exact=True).uncheck()
    page.locator("#scope").select_option("layer")
    ready(page)
    page.evaluate(HELD)
    page.locator("#text").fill("The dog ran")
    page.locator("#scope").select_option("model")
    page.evaluate("oneIsHeld()")
    page.evaluate("held.shift()()")  # the standard run, to compare with
    page.evaluate("oneIsHeld()")
    page.locator("[data-part=overview] canvas").focus()
    for key in ("ArrowUp", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#name")).to_have_text("L3 H1")
    only = unmask.load("story").run(TEXT).trace.weights(3, 1, masks=MaskSpec(causal=False)).numpy()
    assert cell(page, "now", 2, 5).endswith(f"· weight {only[2, 5]:.4f}")
    page.evaluate("letGo()")
    ready(page)


def test_it_opens_at_the_row_query_and_scope_it_is_given(open_page: Open, tmp_path: Path) -> None:  # noqa: F811
    """A query beyond the row's end, as of a server that reads more rows and pads more, is its last position."""
    model, masks = catalog.load("story"), MaskSpec(causal=False, padding=False)
    trace = model.run(model.encode(ROWS.splitlines(), "right"))
    for query, scope, framed in ((2, "layer", 2), (999, "model", trace.batch.ids.shape[1] - 1)):
        written = live_page(browser_model(model, (2, 3)), ROWS, masks, row=1, query=query, side="right", scope=scope)
        path = tmp_path / f"{scope}.html"
        path.write_text(written, "utf-8")
        page = open_page(path)
        chosen = "['row', 'side', 'scope'].map((id) => document.getElementById(id).value)"
        assert page.evaluate(chosen) == ["1", "right", scope]
        expect(page.locator("#after")).to_contain_text(f"({framed})")
        run = trace if scope == "layer" else model.run(trace.batch, masks)
        weight = run.weights(2, 3, 1, masks)[1, 5]
        assert cell(page, "now", 1, 5).endswith(f"· weight {weight:.4f}")
        page.locator("#row").select_option(index=0)
        ready(page)
        assert page.evaluate(chosen) == ["0", "right", scope]


def test_padding_is_called_that_whichever_token_fills_it(open_page: Open, tmp_path: Path) -> None:  # noqa: F811
    """A tokenizer without <pad> pads by its last id, which is an ordinary word where special tokens come first."""
    tokenizer, texts = Tokenizer(models.BPE()), ["The cat", "The little cat saw the big dog"]
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet, special = pre_tokenizers.ByteLevel.alphabet(), ["<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts * 9, trainer)
    torch.manual_seed(0)
    config = TransformerConfig(
        vocabulary=tokenizer.get_vocab_size(), context=32, layers=1, heads=2, width=8, mlp_width=16
    )
    save_transformer(Transformer(config), tmp_path / "tiny")
    tokenizer.save(str(tmp_path / "tiny" / "tokenizer.json"))
    batch = catalog.load(str(tmp_path / "tiny")).encode(texts, "left")
    path = tmp_path / "page.html"
    assert main(["page", "--model", str(tmp_path / "tiny"), "--text", "\n".join(texts), "-o", str(path)]) == 0
    page = open_page(path)
    assert page.locator("[data-part=tokens] .token bdi").all_inner_texts() == list(batch.pieces[0])
    assert "<pad>" in page.locator("#signs").inner_text()
