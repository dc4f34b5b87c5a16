"""Tests of unmask report: one file with all of a run, and its size; and of unmask page: what it refuses."""

import html
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
import torch

import unmask
from model.gpt2 import save_transformer
from model.heads.view import HeadView
from model.masks import NATIVE
from model.transformer import Transformer, TransformerConfig
from tests.model.huggingface.families import random_network, save, word_tokenizer
from tests.tiny import save_tiny
from ui import link as pages
from ui.link import View
from unmask.__main__ import main
from unmask.report_request import LONGEST_LINK, link_to
from unmask.runs import Run
from viz.heads.cells import MAX_CELLS, heads_that_fit
from viz.saved.explorer import AllHeads, ReportNumbers, ReportView, report_page

TEXT = "Once upon a time, <b>there</b> was a cat"


def write(tmp_path: Path, *arguments: str) -> str:
    file = tmp_path / "report.html"
    assert main(["report", "--text", TEXT, "-o", str(file), *arguments]) == 0
    return file.read_text(encoding="utf-8")


def test_the_command_writes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    page = write(tmp_path, "--masks", "none", "--head", "4,0", "--head", "3,5")
    assert re.fullmatch(r".*report.html: story, \d\d tokens, no mask, 0\.\d MB\n", capsys.readouterr().out)
    assert "<td>none; it was trained with causal</td>" in page
    assert "<b>there" not in page
    run = unmask.load("story").run(TEXT, causal=False)
    first = run.next_token().candidates[0]
    assert f">{html.escape(first.label)}</td>" in page
    assert f"{first.probability * 100:.1f}%" in page
    assert f"{run.losses[3]:.2f} nats" in page
    assert f"<small>{run.losses[3]:.2f}</small></span>" in page  # seen without pointing at it
    assert page.count("<small>") == 2 * (len(run.losses) - 1), "now and standard, but for the first token"
    assert "Mean loss: " in page
    standard = write(tmp_path)
    assert "<td>causal</td>" in standard
    assert "Mean loss: " not in standard  # nothing to compare
    assert f"The mean is {np.nanmean(unmask.load('story').run(TEXT).losses):.2f}." in standard


def test_tokens_are_merged_in_it_and_in_its_link(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    page = write(tmp_path, "--by", "words")
    assert "tokens merged into words" in capsys.readouterr().out
    link = re.search(r'href="(http://127[^"]*)"', page)
    assert dict(parse_qsl(urlsplit(html.unescape(link[1])).query))["by"] == "words"


def test_masks_that_block_the_same_cells_are_not_set_side_by_side(tmp_path: Path) -> None:
    page = write(tmp_path, "--masks", "causal")  # without padding, the padding mask blocks nothing
    assert "it was trained with" not in page
    assert "Mean loss: " not in page
    assert "Mean loss: " in write(tmp_path, "--masks", "none")


def test_other_positions_are_set_beside_the_standard_ones() -> None:
    texts = ["Once upon a time", TEXT]
    for side, differ in (("left", True), ("right", False)):
        run = unmask.load("story").run(texts, pad_side=side, masks={"positions": "cells"})
        assert ("Mean loss: " in unmask.report(run).page()) == differ


def test_the_masks_of_every_attention_count(tmp_path: Path) -> None:
    lifted = unmask.load(str(save("t5", tmp_path))).run("the cat sat", target="a big red ball", causal=False)
    for name in ("encoder", "decoder"):
        assert "Mean loss: " in unmask.report(lifted.attention(name)).page()


def test_masks_of_some_layers_are_named_there() -> None:
    lifted = unmask.load("story").run(TEXT, masks={"causal": False, "layers": [1]})
    assert "<td>none in L1; causal elsewhere; it was trained with causal</td>" in unmask.report(lifted).page()


@pytest.mark.parametrize("masks", [{"documents": "zzz"}, {"documents": "n."}, {"sliding": 99}, {"block_causal": 99}])
def test_a_title_leaves_out_a_mask_that_blocks_nothing(masks: dict[str, Any]) -> None:
    run = unmask.load("story").run("The cat sat. The dog ran.", masks=masks)
    assert run.title.endswith(" tokens, causal mask")
    assert run.view(0, 0).blocked.keys() == {"causal"}


def test_a_title_says_where_masks_are_lifted(tmp_path: Path) -> None:
    run = unmask.load("story").run("The cat")
    everywhere = {"causal": False, "layers": [*range(6)]}
    for masks, words in (
        ({"causal": False, "layers": [3, 1], "heads": [0]}, "no mask in H0 of L1, L3, causal mask elsewhere"),
        ({"sliding": 2, "heads": [2]}, "causal and sliding masks in H2, causal mask elsewhere"),
        ({"drawn": [["block", 2, 1, 2, 1]], "heads": [0]}, "causal and drawn masks in H0, causal mask elsewhere"),
        ({"padding": False, "layers": [0]}, "causal mask"),
        ({"prefix": 2}, "causal and prefix masks"),  # a mask that opens cells is a mask, too
        ({"sliding": 1, "sinks": 1, "layers": [2]}, "causal and sliding and sinks masks in L2, causal mask elsewhere"),
        ({"positions": "cells"}, "causal mask, positions by cells"),
        (everywhere, "no mask"),
    ):
        assert repr(run.under(masks)).endswith(f" tokens, {words}"), masks
    assert "<td>causal, prefix; it was trained with causal</td>" in unmask.report(run.under({"prefix": 2})).page()
    wide, narrow = (run.under({"sliding": size}) for size in (1, 2))
    title = f"{run.title.removesuffix(' mask')} and sliding masks"
    assert repr(wide.difference(narrow)).startswith(f"{title}, sliding 1 − {title}, sliding 2: ")
    seq2seq = unmask.load(str(save("t5", tmp_path))).run("the cat sat", target="a big red ball")
    change = seq2seq.under({"causal": False}).attention("cross").difference(seq2seq.attention("cross"))
    assert re.match(r"(.+, \d tokens, no mask), causal False − \1, causal True: ", repr(change))
    assert ": no weight differs" in repr(run.difference(run))


def test_a_written_target_without_an_end_is_said_to_go_on(tmp_path: Path) -> None:
    model = unmask.load(save("t5", tmp_path))  # with random weights it never writes an end
    run = model.run("the cat")
    for name in ("decoder", "cross"):
        assert ", 41 tokens (40 written, which would go on), " in run.attention(name).title
    assert "go on" not in run.attention("encoder").title
    assert "go on" not in model.run("the cat", target="the cat sat").title


def test_what_does_not_fit_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model, text = unmask.load("story"), "hello world " * 200
    with pytest.warns(UserWarning, match=r"at most 256 tokens here: the last \d[\d,]* characters .* “.*hello world"):
        run = model.run(text)
    assert run.text + run.cut == text
    assert len(run.cut) > 500
    assert repr(run) == "story, 256 tokens of a longer text, causal mask"
    again = model.run(run.text)  # without a warning
    assert (again.cut, again.labels) == ("", run.labels)
    sentence = f"the last {len(run.cut):,} characters of the text are cut"
    page = unmask.report(run).page()
    assert sentence in page
    assert page.count("hello") < 400  # in the text and in the tokens, except for what is cut
    assert main(["report", "--text", text, "-o", str(tmp_path / "long.html")]) == 0
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert "256 tokens of a longer text" in printed.out


def test_the_link_is_read_by_the_app(tmp_path: Path) -> None:
    page = write(tmp_path, "--masks", "padding", "--head", "2,5")
    link = html.unescape(re.findall(r'href="(.*?)"', page)[0])
    view = View.model_validate(dict(parse_qsl(urlsplit(link).query)))
    assert (view.model, view.layer, view.head, view.causal, view.text) == ("story", 2, 5, False, TEXT)
    assert view.padding is None  # as in training
    assert {"causal", "padding", "window", "chunk", "image_block"} == set(NATIVE) <= set(View.model_fields)
    assert LONGEST_LINK == pages.LONGEST_LINK


def test_there_is_no_link_that_says_something_else() -> None:
    story = unmask.load("story")
    assert link_to(story.run(TEXT), (0, 0))
    assert not link_to(story.run(TEXT, masks={"sliding": 3}), (0, 0))
    with pytest.warns(UserWarning, match="reads at most 256 tokens"):
        long = story.run("cat's " * (LONGEST_LINK // 6))
    assert not link_to(long, (0, 0))


def test_masks_that_json_does_not_name_are_as_in_training(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    bert = str(save("bert", tmp_path / "bert"))
    write(tmp_path, "--model", bert, "--masks", '{"sliding": 3}')
    assert ", sliding mask, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--masks", "sideways"], "expected masks out of causal, padding, window, chunk, image_block, none alone, or"),
        (["--masks", "none,causal"], "none alone, or JSON such as {\"sliding\": 4}, got 'none,causal'"),
        (["--masks", '{"causal": 3}'], "causal: expected true or false, got 3"),
        (["--head", "4"], "expected a head as L,H, 4,0 for example, got '4'"),
        (["--head", "9,0"], "expected a layer from 0 to 5, got 9"),
        (["--model", "/no/such/folder"], "/no/such/folder"),
        (["-o", "/no/such/folder/report.html"], "No such file or directory"),
        (["-o", f"{__file__}/report.html"], "test_report.py/report.html was not written (Not a directory)"),
    ],
)
def test_what_means_nothing_is_a_sentence_and_status_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["report", "--text", TEXT, "-o", str(tmp_path / "report.html"), *arguments]) == 2
    text = capsys.readouterr().err
    assert text.startswith("No report was written: ")
    assert words in text
    assert len(text.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "dates"], "dates: expected a model in GPT-2's layout, got another"),
        (["--model", "/no/such/folder"], "/no/such/folder is not a folder on this machine"),
        (["--model", "EMPTY"], "has no config.json"),
        (["--model", "BROKEN"], "model.safetensors is damaged or truncated"),
        (["--model", "BERT"], "expected a model in GPT-2's layout with model_type 'gpt2', got 'bert'"),
        (["--model", "RELU"], "in GPT-2's layout with activation_function 'gelu_new', got 'relu'"),
        (["--model", "SCALED"], "in GPT-2's layout with scale_attn_by_inverse_layer_idx False, got True"),
        (["--model", "LARGE"], "expected at most 30 million parameters, got 32.2"),
        (["--model", "WORDS"], "expected a tokenizer like GPT-2's, byte-level BPE"),
        (["--text", "a" * 100_001], "expected a text of at most 100,000 characters, got 100,001"),
        (["--lang", "fr"], "expected a language out of en, zh, got 'fr'"),
        (["--masks", "sideways"], "expected masks out of causal, padding"),
        (["--masks", '{"layers": [1]}'], "expected masks for all layers, heads and counted positions"),
        (["-o", "/no/such/folder/page.html"], "No such file or directory"),
    ],
)
def test_a_page_that_cannot_be_written_is_a_sentence_and_status_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = tmp_path / "model"
    kind = arguments[1]
    folder.mkdir()
    if kind in ("BROKEN", "WORDS", "LARGE"):
        save_tiny(folder)
    if kind == "BROKEN":
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:200])
    elif kind == "WORDS":
        tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        tokenizer["normalizer"] = {"type": "Lowercase"}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    elif kind == "BERT":
        save("bert", folder)
    elif kind in ("RELU", "SCALED"):
        save("gpt2", folder)
        how = {"activation_function": "relu"} if kind == "RELU" else {"scale_attn_by_inverse_layer_idx": True}
        config = json.loads((folder / "config.json").read_text("utf-8")) | how
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
    elif kind == "LARGE":
        large = TransformerConfig(vocabulary=283, context=16, layers=1, heads=2, width=1624)
        save_transformer(Transformer(large), folder, torch.float16)
    arguments = [str(folder) if argument.isupper() else argument for argument in arguments]
    assert main(["page", "-o", str(tmp_path / "page.html"), *arguments]) == 2
    text = capsys.readouterr().err
    assert text.startswith("No page was written: ")
    assert words in text
    assert len(text.splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_nothing_is_downloaded_without_a_word(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from unmask import report_request

    monkeypatch.setattr(report_request.catalog, "download_size", lambda _: 548_000_000)
    assert main(["report", "--model", "gpt2", "--text", TEXT]) == 2
    assert "nothing is downloaded unasked: 548 MB; --download fetches them" in capsys.readouterr().err


def report_of_noise(layers: int, heads: int, tokens: int) -> str:
    """Return a report of weights that cannot be compressed."""
    random = np.random.default_rng(1)
    labels = [f"token{index}" for index in range(tokens)]
    one = HeadView(np.zeros((tokens, tokens)), np.zeros((tokens, tokens)), {}, labels, labels)
    shown = [(layer, head) for layer in range(layers) for head in range(heads)][: heads_that_fit(one)]
    views = {
        head: HeadView(random.random((tokens, tokens), np.float32), one.scaled, {}, labels, labels) for head in shown
    }
    small = random.random((layers, heads, 64, 64), np.float32)
    drawn = AllHeads(small, np.zeros((layers, 1, 64, 64), bool), views, [(0, 0)], tokens - 1)
    shares = np.zeros((layers, heads), np.float32)
    words = "noise", "random", "self", tokens, "none", "unmask"
    return report_page(ReportView(*words, " ".join(labels), labels, drawn, ReportNumbers(shares, shares)))


@pytest.mark.parametrize(("tokens", "words"), [(128, "144 of 144"), (257, "35 of 144")])
def test_no_report_is_larger_than_8_mb(tokens: int, words: str) -> None:
    page = report_of_noise(12, 12, tokens)
    assert len(page.encode()) < 8e6
    assert f"Heads included in full, to four digits: {words}." in page
    assert MAX_CELLS == 144 * 128 * 128


def test_where_no_token_has_a_loss_no_mean_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is of a text of one token, in a model that puts no start token before it."""
    run = unmask.load("story").run("a")
    monkeypatch.setattr(Run, "losses", np.full(len(run.labels), np.nan, np.float32))
    page = unmask.report(run).page()
    assert "The next token" in page
    assert "The mean is" not in page
    assert "Loss of each token" not in page


def test_the_heads_of_a_text_too_long_to_hold_say_of_how_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    run = unmask.load("story").run("The cat saw the dog. " * 18)
    tokens = len(run.labels)
    monkeypatch.setattr("unmask.runs.MAX_WHOLE", 60**2)
    monkeypatch.setattr("unmask.runs.MAX_TOKENS", 48)
    assert tokens > 100
    shown = f"shows queries {tokens - 48}–{tokens - 1} of {tokens} and keys {tokens - 48}–{tokens - 1} of {tokens}"
    assert shown in run.heads().page()
    assert shown in unmask.report(run).page()
    assert f"{tokens} queries" in run.heads().file("svg").decode()


def test_what_is_of_tokens_does_not_say_that_words_were_merged() -> None:
    run = unmask.load("story").run("The cat saw the dog.").merged("words")
    assert "words" in str(run)
    for one in (run.head_part(0, 0, (2, 5), (0, 5)).of, str(run.leak())):
        assert "words" not in one


def test_a_pixel_that_attends_to_nothing_says_so() -> None:
    closed = unmask.digit(np.zeros(64, int), 3, masks={"drawn": [["block", 0, 0, 64, 64]]}).pixels(0, 0, 5)
    assert str(closed) == "L0 H0 at r0 c5: attends to nothing"


def test_a_report_of_a_network_that_was_trained_since_the_run_is_refused() -> None:
    """Otherwise its standard masks would run with the new weights, and the difference be ascribed to the masks."""
    network = random_network("bert")
    run = unmask.load(network, word_tokenizer()).run(["the cat saw a dog", "the cat"], row=1, padding=False)
    assert "standard" in unmask.report(run).page()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2)
    with pytest.raises(ValueError, match="weights have changed"):
        unmask.report(run)
