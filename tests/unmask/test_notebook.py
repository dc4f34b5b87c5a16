"""Tests of unmask.load and what it returns: numbers are those of the trace, every object shows itself in one page."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

import unmask
from model import catalog
from model.masks import MaskSpec
from tests.model.huggingface.families import TEMPLATES, random_network, save, word_tokenizer
from unmask import pictures, runs
from unmask.notebook import LoadedModel
from unmask.pictures import predicted
from viz.numbers import Candidate

TEXT = "Once upon a time there was a little cat. The little cat"
WORDS = "the cat sat on a mat and then it saw one big red ball"


def in_memory(family: str) -> LoadedModel:
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(TEMPLATES.get(family, "<s> $A")), pad_token="<pad>"
    )
    return unmask.load(random_network(family), tokenizer, name=f"my {family}")


def test_every_number_is_the_traces(story: LoadedModel) -> None:
    run = story.run(TEXT, causal=False)
    model = catalog.load("story")
    trace = model.run(model.encode([TEXT]), MaskSpec(causal=False))
    whole = run.numpy()
    for layer, head in ((0, 0), (4, 0), (5, 3)):
        weights = trace.weights(layer, head).numpy()
        for found in (run.head(layer, head), run.tokens(layer, head)):
            np.testing.assert_allclose(found.numpy(), weights, atol=1e-6)
        np.testing.assert_allclose(run.arcs(layer, [head, 1]).numpy()[0], weights, atol=1e-6)
        np.testing.assert_allclose(whole[layer, head], weights, atol=1e-6)
        np.testing.assert_allclose(run.head(layer, head).scaled, trace.stages(layer, head).scaled.numpy(), atol=1e-5)
    np.testing.assert_allclose(run.heads().numpy(), trace.overview().numpy(), atol=1e-6)
    np.testing.assert_allclose(run.losses, trace.losses().numpy(), atol=1e-6)
    chances = trace.next_token()
    np.testing.assert_allclose(run.next_token().numpy(), chances.topk(10).values.numpy(), atol=1e-6)
    assert run.next_token(most=3).candidates[0].label == model.label(int(chances.argmax()))


def test_of_a_text_too_long_for_a_whole_head_there_are_parts(
    story: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = story.run(TEXT)
    whole = run.head(3, 2).weights
    monkeypatch.setattr(runs, "MAX_WHOLE", 100)
    for ask in (run.head, run.tokens, run.arcs, run.mask):
        with pytest.raises(ValueError, match=r"at most 10 tokens for a whole head, got .* run\.head_part\(layer, head"):
            ask(3, 2)
    with pytest.raises(ValueError, match=r'run\.merged\("tokens"\)\.heads\(\) all heads'):
        run.merged("words").heads()
    part = run.head_part(3, 2, queries=(5, 9), keys=(1, 8))
    np.testing.assert_allclose(part.weights, whole[5:9, 1:8], atol=1e-6)
    assert (part.view.first, part.view.first_key, part.view.queries) == (5, 1, run.labels[5:9])
    assert "<iframe" in part._repr_html_() and "<iframe" in run._repr_html_()  # noqa: PT018
    np.testing.assert_allclose(run.shown_view(3, 2).weights, whole, atol=1e-6)  # this one is short enough for that
    for some in ((5, 5), (-1, 3), (0, len(whole) + 1)):
        with pytest.raises(ValueError, match="expected 1 to 256 positions from 0 to"):
            run.head_part(3, 2, queries=some, keys=(0, 1))


def test_the_difference_of_two_runs(story: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    run, lifted = story.run(TEXT), story.run(TEXT, causal=False)
    change = lifted.numpy() - run.numpy()
    difference = lifted.difference(run)
    np.testing.assert_allclose(difference.numpy(), np.abs(change).max((2, 3)), atol=1e-6)
    layer, head = np.unravel_index(difference.numpy().argmax(), difference.numpy().shape)
    assert f"L{layer} H{head} changes most" in repr(difference)
    row = difference.to_dataframe().nlargest(1, "value").iloc[0]
    assert (row["layer"], row["head"]) == (layer, head)
    third, other = (one.head(layer, head).queries([3]) for one in (lifted, run))
    assert {*third.to_dataframe()["query"], *third.difference(other).to_dataframe()["query"]} == {3}
    one = lifted.head(layer, head).difference(run.head(layer, head))
    np.testing.assert_allclose(one.numpy(), change[layer, head], atol=1e-6)
    assert not one.view.any_blocked().any()  # cells that only one of them blocks have changed
    assert "The large heatmap shows" not in one.page()
    monkeypatch.setattr(pictures, "MAX_TOKENS", 5)
    part = lifted.head(layer, head).difference(run.head(layer, head))
    assert "The large heatmap shows queries 9–13 of 14 and keys 9–13 of 14." in part.page()
    np.testing.assert_allclose(difference.view.heads[layer, head].weights, one.numpy(), atol=1e-6)
    assert "nats/token" in difference.page()
    with pytest.raises(ValueError, match="expected two runs on the same tokens"):
        run.difference(story.run(TEXT.replace("cat", "dog")))
    with pytest.raises(ValueError, match=r"expected two heads over the same tokens, got 14 × 14 \(<start> Once"):
        run.head(0, 0).difference(story.run("Once upon a time").head(0, 0))


def test_a_mask_is_the_traces(story: LoadedModel) -> None:
    masks = {"sliding": 3, "sinks": 1, "layers": [2], "drawn": [["block", 5, 4, 7, 5], ["open", 2, 9, 2, 9]]}
    run = story.run([TEXT, "Once upon a time"], row=1, pad_side="left", masks=masks)
    for layer in (1, 2):
        found = run.mask(layer, 0)
        np.testing.assert_array_equal(found.numpy(), ~run.head(layer, 0).view.any_blocked())
        assert found.numpy().dtype == bool
        assert f"{found.numpy().sum()} cells allowed" in repr(found)
    assert not run.mask(1, 0).view.strokes  # the masks, the drawing included, are for layer 2 only
    assert len(run.mask(2, 0).view.strokes) == 2
    assert not np.array_equal(run.mask(1, 0).numpy(), run.mask(2, 0).numpy())
    with pytest.raises(ValueError, match="layer"):
        run.mask(9, 0)
    seq2seq = in_memory("t5").run("the cat sat", target="a big red ball")
    assert seq2seq.mask(0, 0).numpy().shape == (len(seq2seq.labels),) * 2
    with pytest.raises(ValueError, match="expected the attention of a text to itself, got cross"):
        seq2seq.attention("cross").mask(0, 0)


def test_the_leak(story: LoadedModel) -> None:
    rows = [TEXT, "Once upon a time"]
    assert not story.run(rows, row=1).leak().numpy().any()
    found = story.run(rows, row=1, padding=False, causal=False, pad_side="left").leak()
    weights = story.run(rows, row=1, padding=False, causal=False, pad_side="left").numpy()
    pads = weights.shape[-1] - 5  # <start> and four words
    np.testing.assert_allclose(found.padding, weights[:, :, pads:, :pads].sum(-1).mean(-1), atol=1e-6)
    later = np.triu(weights[:, :, pads:, pads:], 1).sum(-1).mean(-1)
    np.testing.assert_allclose(found.future, later, atol=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "mistral", "bert"])
def test_a_network_in_memory_is_shown_and_left_as_it_is(family: str) -> None:
    loaded = in_memory(family)
    network = loaded.network
    run = loaded.run(WORDS)
    with torch.inference_mode():
        own = network(input_ids=run.trace.batch.ids, output_attentions=True)
    expected = np.stack([one[0].numpy() for one in own.attentions])
    np.testing.assert_allclose(run.numpy(), expected, atol=2e-6)
    assert network.config._attn_implementation == "eager"
    assert repr(loaded).startswith(f"my {family}: ")
    weights = [parameter.data_ptr() for parameter in network.parameters()]
    assert set(weights) == {one.data_ptr() for one in run.model._stacks.network.parameters()}  # type: ignore[attr-defined]
    assert ("causal" in run.head(0, 0).blocked) == (family != "bert")


def test_an_encoder_decoder() -> None:
    run = in_memory("t5").run("the cat sat", target="a big red ball")
    assert run.trace.name == "decoder"
    cross = run.attention("cross")
    queries, keys = cross.head(1, 2).numpy().shape
    assert (queries, keys) == (len(run.labels), 4)
    assert cross.tokens(1, 2).across
    assert cross.heads().view.across
    assert "causal" not in cross.head(0, 0).blocked
    assert repr(cross.leak()).endswith(": 0% of all attention on padding")
    assert run.text == "the cat sat\n→ a big red ball"


def test_masks_are_given_by_name(story: LoadedModel) -> None:
    run = story.run(TEXT, masks={"sliding": 3, "layers": [2]})
    assert run.masks == MaskSpec(sliding=3, layers=(2,))
    for layers in (range(2, 4), np.array([2, 3])):
        assert story.run(TEXT, masks={"layers": layers}).masks == MaskSpec(layers=(2, 3))
    for no in (np.bool_(False), torch.tensor(False)):
        assert run.under({"causal": no}).masks == story.run(TEXT, causal=no).masks == MaskSpec(causal=False)
    alone = story.run("cat", masks={"drawn": [["block", 0, 0, 9, 9]]})
    assert alone.leak().line.endswith(": no token attends to anything")
    assert "no token attends to anything&lt;/p&gt;" in alone.leak()._repr_html_()
    assert run.head(2, 0).numpy()[9, :7].max() == 0
    assert run.head(1, 0).numpy()[9, :7].max() > 0
    assert story.run(TEXT, masks=MaskSpec(stride=2), causal=False).masks == MaskSpec(stride=2, causal=False)
    assert in_memory("bert").run(WORDS, masks={"sinks": 1}).masks == MaskSpec(causal=False, sinks=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text": ""}, "expected a text, or several, got ''"),
        ({"text": 3}, "expected a text, or several, got 3"),
        ({"text": {"a": 1}}, "expected a text, or several, got {'a': 1}"),
        ({"text": ["a", None]}, r"expected a text, or several, got \['a', None\]"),
        ({"text": TEXT, "row": "0"}, "expected a row from 0 to 0, got '0'"),
        ({"text": TEXT, "row": True}, "expected a row from 0 to 0, got True"),
        ({"text": TEXT, "target": 4}, "expected a target, or several, got 4"),
        ({"text": TEXT, "masks": {"sliding": object()}}, "expected masks as plain numbers, texts and lists"),
        ({"text": TEXT, "pad_side": "top"}, "expected padding on the left or right, got 'top'"),
        ({"text": TEXT, "row": 1}, "expected a row from 0 to 0, got 1"),
        ({"text": TEXT, "masks": {"width": 3}}, "expected one of block_causal, .*, got 'width'"),
        ({"text": TEXT, "masks": "causal"}, "expected masks as a MaskSpec or a dict of its fields, got str"),
        ({"text": TEXT, "masks": {"layers": [6]}}, "expected numbers from 0 to 5"),
        ({"text": TEXT, "target": "a"}, "it takes texts, no targets"),
    ],
)
def test_what_means_nothing_is_a_sentence(story: LoadedModel, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        story.run(**options)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda run: run.next_token(99), "expected a query from 0 to 13, got 99"),
        (lambda run: run.next_token(-1), "expected a query from 0 to 13, got -1"),
        (lambda run: run.next_token(most=0), "expected a number of tokens from 1 to 1000000, got 0"),
        (lambda run: run.head("4", "0"), "expected a layer from 0 to 5, got '4'"),
        (lambda run: run.head(4, 0.0), r"expected a head from 0 to 5, got 0\.0"),
        (lambda run: run.tokens(None, 0), "expected a layer from 0 to 5, got None"),
        (lambda run: run.arcs(0, "01"), "expected a head of the layer, or several, got '01'"),
        (lambda run: run.arcs(0, torch.tensor(1)), "expected a head of the layer, or several"),
        (lambda run: run.mask(9, 0), "expected a layer from 0 to 5, got 9"),
        (lambda run: run.difference(None), "expected another run, got NoneType"),
        (lambda run: run.head(0, 0).difference(run), "expected another head, got Run"),
        (lambda run: run.under("causal"), "expected masks as a MaskSpec or a dict of its fields, got str"),
        (lambda run: unmask.report(None), "expected a run, .* got NoneType"),
        (lambda run: unmask.report(run, 3), r"expected heads as pairs \(layer, head\), got 3"),
        (lambda run: unmask.report(run, [(0, 9)]), "expected a head from 0 to 5, got 9"),
        (lambda run: unmask.digit([0.5] * 64, 3), "expected 64 levels, whole numbers from 0 to 7, got float64"),
        (lambda run: unmask.digit([float("nan")] * 64, 3), "expected 64 levels, whole numbers"),
        (lambda run: unmask.digit([[1], [1, 2]], 3), r"expected 64 levels, .*, got object \[2\]"),
        (lambda run: run.head(4, 0, by=""), "expected one of tokens, words, sentences, got ''"),
        (lambda run: run.arcs(4, 0, by=""), "expected one of tokens, words, sentences, got ''"),
        (lambda run: unmask.digit([0] * 64, "3"), "expected a digit from 0 to 9, got '3'"),
        (lambda run: unmask.attentions(None, ["a"]), "expected a tuple of a tensor .*, got NoneType"),
        (lambda run: unmask.attentions((torch.ones(1, 1, 1, 1),), 3), "expected tokens as a list of labels, got 3"),
        (lambda run: unmask.attentions((torch.full((1, 1, 1, 1), np.nan),), ["a"]), "expected weights from 0 to 1"),
    ],
)
def test_what_a_run_does_not_have_is_a_sentence(story: LoadedModel, ask: Callable, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ask(story.run(TEXT))


def test_numpys_numbers_are_numbers(story: LoadedModel) -> None:
    run = story.run(TEXT)
    np.testing.assert_array_equal(run.head(np.int64(4), np.int32(0)).numpy(), run.head(4, 0).numpy())
    assert len(unmask.report(run, [(np.int64(1), np.int64(2))]).page()) > 1000


def test_a_picture_is_saved_as_what_its_name_ends_in(story: LoadedModel, tmp_path: Path) -> None:
    run, lifted = story.run(TEXT), story.run(TEXT, causal=False)
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!doctype", "": b"<!doctype"}
    printed = {
        "head": lifted.head(4, 0), "text": lifted.tokens(4, 0), "arcs": lifted.arcs(4, [0, 1]), "heads": lifted.heads(),
        "change": lifted.head(4, 0).difference(run.head(4, 0)),
    }  # fmt: skip
    for name, picture in printed.items():
        for ending, begin in begins.items() if name == "change" else [("svg", begins["svg"])]:
            path = picture.save(tmp_path / f"{name}.{ending}".rstrip("."))
            assert path.read_bytes().startswith(begin), path
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert "story, 14" in drawn
        assert "Unmask" in drawn
    assert "red: it rose" in (tmp_path / "change.svg").read_text()
    before = set(tmp_path.iterdir())
    for picture in (run.leak(), run.next_token(), lifted.difference(run), run.mask(4, 0), unmask.report(run)):
        with pytest.raises(ValueError, match=r"expected a file of HTML \(\.html\), got 'png'"):
            picture.save(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"expected a file of HTML, PNG, SVG or PDF .*, got 'jpg'"):
        run.head(0, 0).save(tmp_path / "a.jpg")
    for wrong in (None, 3, ""):
        with pytest.raises(ValueError, match="expected a file name, got"):
            run.head(0, 0).save(wrong)  # type: ignore[arg-type]
    assert set(tmp_path.iterdir()) == before


def test_what_cannot_be_loaded_is_a_sentence(story: LoadedModel) -> None:
    for alone in (random_network("gpt2"), 5, ["story"]):
        with pytest.raises(ValueError, match=r"expected a name, a folder, or a network with its tokenizer, got"):
            unmask.load(alone)
    with pytest.raises(ValueError, match="expected a name for a network alone, got 'mine' for 'story'"):
        unmask.load("story", name="mine")
    with pytest.raises(ValueError, match=r"expected a step, .* or precision with a name alone, got one with a network"):
        unmask.load(random_network("gpt2"), word_tokenizer(), device="cpu")
    with pytest.raises(ValueError, match="expected no step, 'story' having none, got 5"):
        unmask.load("story", step=5)
    with pytest.raises(ValueError, match="expected a tokenizer with a network alone, got one with the name 'story'"):
        unmask.load("story", word_tokenizer())
    with pytest.raises(ValueError, match="expected a model of transformers"):
        unmask.load(torch.nn.Linear(2, 3), word_tokenizer())
    with pytest.raises(ValueError, match="expected a tokenizer of transformers or of tokenizers, got str"):
        unmask.load(random_network("gpt2"), "words")
    with pytest.raises(ValueError, match=r"expected a language model .*, got GPT2Model"):
        unmask.load(random_network("gpt2").transformer, word_tokenizer())
    with pytest.raises(ValueError, match="expected a layer from 0 to 5, got 6"):
        story.run(TEXT).head(6, 0)
    with pytest.raises(ValueError, match="expected 1 to 6 heads, got 0"):
        story.run(TEXT).arcs(0, [])
    with pytest.raises(ValueError, match="expected a model that predicts next tokens, got my bert, encoder"):
        _ = in_memory("bert").run(WORDS).losses


def test_every_object_shows_itself_in_one_page_and_one_line(story: LoadedModel) -> None:
    text = '<script>alert(1)</script> cat\'s "dog"'
    run, lifted = story.run(text), story.run(text, causal=False)
    shown = [run, run.heads(), run.head(4, 0), run.tokens(4, 0), run.arcs(4, [0, 1]), run.leak(), run.next_token(),
             lifted.difference(run), lifted.head(4, 0).difference(run.head(4, 0)), unmask.report(lifted),
             run.mask(4, 0), story.ov(0, 0), story.qk(0, 0, [5])]  # fmt: skip
    for one in shown[1:]:
        table = one.to_dataframe()
        assert not table.columns.str.startswith("axis").any()
        assert len(table) == one.numpy().size
    for view in shown:
        page = view._repr_html_()
        assert re.fullmatch(r'<iframe [^<>"]*"[^<>]*></iframe>', page), f"{view!r}: not one frame"
        assert "<script>alert" not in page
        assert "http" not in re.sub(r"http-equiv|http://www.w3.org/2000/svg|http://127.0.0.1:8501", "", page)
        assert "\n" not in repr(view)
    assert repr(run) == "story, 23 tokens, causal mask"
    assert repr(lifted) == "story, 23 tokens, no mask"


def test_check_runs_the_models_own_code(story: LoadedModel) -> None:
    run = story.run("The cat sat")
    report, length = run.check(), len(run.labels)
    assert report.obeys
    assert len(report.pieces) == length
    moved, tolerance = report.numpy(), report.mask.tolerance
    assert (moved[np.triu_indices(length, 1)] <= tolerance).all()  # no output changes with a later token
    assert (moved[np.tril_indices(length)] > tolerance).all()


def test_a_picture_says_what_it_leaves_out(story: LoadedModel) -> None:
    given = [torch.rand(1, 5, 300, 300).softmax(-1) for _ in range(2)]
    heads = unmask.attentions(given, [f"t{index}" for index in range(300)])
    drawn = heads.heads().view
    assert list(drawn.heads) == [(1, 0), (0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 1)]  # at most 7 × 256² cells
    assert "The large heatmap shows queries 44–299 of 300 and keys 44–299 of 300." in heads.heads().page()
    assert "Tokens 44–299 of 300 are shown" in heads.head(1, 2).page()
    np.testing.assert_array_equal(drawn.heads[0, 3].weights, given[0][0, 3, 44:, 44:].numpy())
    assert heads.head(1, 2).numpy().shape == (300, 300)
    whole = story.run(TEXT).heads()
    assert len(whole.view.heads) == 36
    assert "The large heatmap shows" not in whole.page()


def test_a_model_that_is_not_trained_with_a_causal_mask_has_no_such_leak() -> None:
    run = in_memory("bert").run(WORDS)
    assert np.isnan(run.leak().numpy()[0]).all() == np.isnan(run.survey.future).all()
    assert "attention on later tokens: " in run.notes()[0][0]
    assert "–" not in run.notes()[0][0]


def test_a_digit_and_where_a_pixel_looks() -> None:
    levels = np.arange(64).reshape(8, 8) % 8
    run = unmask.digit(levels, 3, causal=False)
    seen = run.pixels(2, 1, 20)
    np.testing.assert_allclose(seen.numpy(), run.head(2, 1).numpy()[21], atol=1e-6)
    assert run.labels[:3] == ["class 3", "r0 c0: 0", "r0 c1: 1"]
    assert repr(seen).startswith("L2 H1 at r2 c4: attends most to ")
    assert seen.to_dataframe()["token"].tolist()[:2] == ["class 3", "r0 c0"]
    assert not seen.view.any_blocked().any()
    assert unmask.digit(levels, 3).pixels(2, 1, 20).view.any_blocked()[2, 1, 22:].all()
    for wrong, words in (((levels[:7], 3), "expected 64 levels"), ((levels + 1, 3), "expected levels from 0 to 7")):
        with pytest.raises(ValueError, match=words):
            unmask.digit(*wrong)
    with pytest.raises(ValueError, match="expected a pixel from 0 to 63, got 64"):
        run.pixels(0, 0, 64)


def test_no_token_is_certain() -> None:
    """float32 rounds a large probability to 1; the table and the line show >99.9%."""
    found = predicted("after a", [Candidate("b", 1.0)])
    assert repr(found) == "after a: b with >99.9%"
    assert "&gt;99.9%" in found.page()


def test_a_hook_or_a_weight_that_came_after_loading_is_warned_of() -> None:
    network = random_network("gpt2")
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=word_tokenizer("<s> $A"), pad_token="<pad>")
    model = unmask.load(network, tokenizer, name="mine")
    layer = network.transformer.h[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = model.run(WORDS).losses
    handle = layer.register_forward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="Call unmask.load again"):
        model.run(WORDS)
    handle.remove()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run(WORDS)
        layer.mlp.c_fc.weight.data.mul_(2)  # in place: the model shares the tensor
        assert not np.array_equal(model.run(WORDS).losses, before)
    layer.mlp.c_fc.weight = torch.nn.Parameter(layer.mlp.c_fc.weight / 2)
    with pytest.warns(UserWarning, match="hooks or parameters have changed"):
        model.run(WORDS)


@pytest.mark.parametrize(("family", "words"), [("bert", "predict the next token"), ("t5", "reads a source as well")])
def test_an_encoder_is_not_served(family: str, words: str, tmp_path: Path) -> None:
    run = unmask.load(str(save(family, tmp_path))).run("the cat sat on the mat")
    for ask in (run.served, lambda: run.tree([-1]), lambda: run.packed([2]), run.streamed):
        with pytest.raises(ValueError, match=f"{words}.*: choose a decoder"):
            ask()
    if family == "bert":
        with pytest.raises(ValueError, match=r"expected a model that predicts next tokens, got .*, encoder"):
            run.logit_lens()
