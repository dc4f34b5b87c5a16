"""The Circuits page, and circuits as measures of the Head atlas, without a browser."""

import copy
import html
import re
from gettext import NullTranslations
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

import i18n
from model import catalog
from model.base import Model
from model.circuits.ov_qk import composition, copying_scores, ov, qk
from model.circuits.weights import tokens_compared
from tests.model.huggingface import families
from tests.model.huggingface.families import DECODERS, random_network, save_tokenizer
from tests.pages.explore import Explore, array
from tests.pages.test_head_atlas import HeadAtlas
from ui import results
from viz.html import fixed
from viz.palette import NOW


class Circuits(Explore):
    SCRIPT = "pages/circuits.py"

    def table(self, title: str) -> str:
        return next(html.unescape(one) for one in self.html() if title in one)


def test_the_page_shows_what_the_weights_give(story: Model) -> None:
    page = Circuits()
    first, second, pairs = ov(story, 4, 0), qk(story, 4, 0), composition(story)
    assert f"OV copying score {fixed(first.copying, 2)}" in page.sentence()
    for title, found in (("token attended to", first), ("query token", second)):
        table = page.table(title)
        assert all(one.token in table and one.largest[0][0] in table for one in found.tokens)
    np.testing.assert_allclose(array(page.trace("profile", "profile")["y"]), second.profile, atol=1e-6)
    later, reads, earlier, wrote = np.unravel_index(np.nanargmax(pairs[1]), pairs[1].shape)
    strongest = f"L{later} H{reads} reads the output of L{earlier} H{wrote}, {np.nanmax(pairs[1]):.3f} above random"
    assert any(strongest in text for text in page.boxes("markdown"))
    page.set(composed="q", layer=2, head=3)
    assert page.url == {"composed": "q", "layer": "2", "head": "3"}
    assert "L2 H3" in page.sentence()


def test_the_sentence_is_said_as_a_whole_in_the_reader_s_language(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chinese(NullTranslations):
        def gettext(self, message: str) -> str:
            return message.replace(".", "。")

    page = Circuits()
    monkeypatch.setattr(i18n, "_catalogue", lambda _: Chinese())
    assert page.set(layer=2, head=3).sentence().startswith("L2 H3。OV copying score ")


def test_tokens_of_the_text() -> None:
    page = Circuits(text="the cat the", circuit_tokens="text")
    assert page.table("token attended to").count("<tr>") == 1 + 3
    assert "·cat" in page.table("query token")


def test_what_is_left_out_of_a_long_text_and_of_many_arcs_is_said() -> None:
    words = "the a an and but or so he she it they cat dog bird king queen old big red blue sat ran saw had was"  # 25
    page = Circuits(text=f"the the {words} cat", circuit_tokens="text", layer="4", head="0")
    assert page.table("token attended to").count("<tr>") == 1 + 24
    left_out = "Only the first 24 of {} different tokens of the first line are shown."
    assert any(re.fullmatch(re.escape(left_out).replace(r"\{\}", r"\d+"), note) for note in page.boxes("caption"))
    assert any("the 40 strongest of 385 pairs" in note for note in page.boxes("caption"))
    shapes = page.figures()["arcs"]["layout"]["shapes"]
    assert any(shape["line"]["color"] == NOW for shape in shapes)
    page.set(text="the cat the dog")
    assert not any("different tokens" in note for note in page.boxes("caption"))


def test_a_text_none_of_whose_tokens_is_compared_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = results.ask
    few = lambda function, *of: 7 if function is tokens_compared else ask(function, *of)  # noqa: E731 - none is a word
    monkeypatch.setattr(results, "ask", few)
    page = Circuits(text="the cat", circuit_tokens="text")
    assert page.boxes("info") == [
        "None of the first line's tokens is among the first 7, which are compared: the tables show those with the "
        "largest effects."
    ]
    assert "·cat" not in page.table("query token")
    page.set(text="")
    assert page.boxes("info") == ["Type a text on the left, one sequence per line, or choose an example."]


def test_a_model_without_circuits_is_refused_in_a_sentence(folders: dict[str, str]) -> None:
    page = Circuits(model=folders["gemma2"])
    assert any("decoders built like Llama" in text for text in page.boxes("error"))
    page = Circuits(model="dates", lang="zh")
    assert any("而不是这个字符级 Transformer" in text for text in page.boxes("error"))


def test_a_head_that_writes_nothing_changes_no_logit_and_no_later_layer(tmp_path: Path) -> None:
    config = copy.deepcopy(DECODERS["gpt2"])
    config.n_layer = 1
    network = random_network("gpt2", config)
    network.transformer.h[0].attn.c_proj.weight.data.zero_()
    network.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    assert ". It changes no logit. Position" in Circuits(model=str(tmp_path), layer=0, head=1).sentence()


def test_a_head_without_a_copying_score_may_change_logits(tmp_path: Path) -> None:
    """The head maps some tokens to others that it does not read: all eigenvalues of its OV circuit are 0."""
    config = hf.LlamaConfig(
        **families.PLAIN | {"hidden_size": 64, "num_hidden_layers": 1, "tie_word_embeddings": False}
    )
    network = random_network("llama", config)
    attention, tokens = network.model.layers[0].self_attn, families.VOCABULARY
    with torch.no_grad():
        for weight in (network.model.embed_tokens.weight, network.lm_head.weight):
            weight.copy_(torch.eye(tokens, 64))
        for norm in (network.model.layers[0].input_layernorm, network.model.norm):
            norm.weight.fill_(1)
        attention.v_proj.weight[:16] = attention.o_proj.weight[:, :16] = 0
        attention.v_proj.weight[0, 4] = attention.o_proj.weight[5, 0] = 1
        attention.o_proj.weight[6, 0] = -1  # otherwise subtracting the mean would lower the logit of the token read
    network.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    page = Circuits(model=str(tmp_path), layer=0, head=0)
    read, written = (families.WORDS[number - len(families.SPECIAL)] for number in (4, 5))
    found = ov(catalog.load(str(tmp_path)), 0, 0)
    assert (found.tokens[0].token, found.tokens[0].largest[0][0]) == (read, written)
    assert not found.silent
    assert "It has no OV copying score. Position" in page.sentence()
    assert "no logit" not in page.sentence()


def test_circuits_as_measures_of_the_atlas(story: Model) -> None:
    page = HeadAtlas(x="copying_scores", y="strongest_reads")
    points = page.points()
    heads = points["customdata"]
    assert min(layer for layer, _ in heads) == 1, "heads of the first layer read no other"
    page.set(layer=0, head=1)  # a head of the first layer
    assert page.trace("atlas_scatter", "chosen")["x"] == []
    assert page.points() == points
    expected = copying_scores(story)
    assert points["x"] == pytest.approx([float(expected[tuple(head)]) for head in heads], abs=1e-5)
