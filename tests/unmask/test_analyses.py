"""Tests of the pages' computations in Python. Run: python -m pytest tests/unmask/test_analyses.py"""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import unmask
from model.attribution.score_split import score_split
from model.heads.ablation import AblatedHeads, layer_effects, outcome
from model.heads.layers import layer_maps, logit_lens, token_flow
from model.spec import MaskSpec
from tests.model.huggingface.families import save
from tests.viz.packet import unpacked
from unmask.notebook import LoadedModel
from unmask.pictures import Picture
from unmask.runs import Run
from viz.html import signed

TEXT = "Once upon a time, there was Lily's cat. She ran."


@pytest.fixture(scope="module")
def run(story: LoadedModel) -> Run:
    return story.run(TEXT)


def shows_itself(picture: Picture) -> Picture:
    """Assert that a picture has one line, a page that needs nothing else, a table row for each number; return it."""
    assert "\n" not in repr(picture)
    assert "<iframe" in picture._repr_html_()
    assert len(picture.to_dataframe()) == picture.numpy().size
    return picture


def test_arrays_are_the_traces(run: Run) -> None:
    record, tokens = run.trace.layers[3], len(run.labels)
    np.testing.assert_array_equal(run.q(3), record.q[0])
    np.testing.assert_array_equal(run.k(3), record.k[0])
    np.testing.assert_array_equal(run.v(3), record.v[0])
    np.testing.assert_array_equal(run.logits, run.trace.logits[0])
    streams = run.model.residuals(run.trace.batch, run.masks)
    np.testing.assert_array_equal(run.residual(2), streams.streams[2][0])
    last = run.model.readout(streams.final(torch.tensor(run.residual(6))))
    np.testing.assert_allclose(last.detach(), run.logits, atol=1e-4)
    assert run.residual(0).shape == (tokens, 192)
    for ask in (lambda: run.q(6), lambda: run.residual(7)):
        with pytest.raises(ValueError, match="expected a layer from 0"):
            ask()


def test_ids_in_place_of_a_text(story: LoadedModel, run: Run) -> None:
    again = story.run(ids=run.trace.batch.ids[0].tolist())
    np.testing.assert_array_equal(again.logits, run.logits)
    assert again.labels == run.labels
    assert again.head(4, 0, by="words").view.queries == run.head(4, 0, by="words").view.queries
    two = story.run(ids=[[1, 30, 31, 32], [1, 30]], row=1, pad_side="left")
    assert two.labels[:2] == ["<pad>", "<pad>"]
    np.testing.assert_allclose(two.logits[2:], story.run(ids=torch.tensor([1, 30])).logits, atol=1e-4)
    assert story.run(ids=list(np.array([1, 30]))).trace.batch.ids.tolist() == [[1, 30]]
    split = MaskSpec(documents=".")
    for ask in (lambda: story.run(ids=[1, 30, 31], masks=split), lambda: again.under(split),
                lambda: again.ablate([(0, 0)], "mask", mask=split)):  # fmt: skip
        with pytest.raises(ValueError, match="expected a text for the mask 'documents'"):
            ask()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ids": [1, 99_999]}, "expected a token id from 0 to"),
        ({"ids": []}, "expected 1 to 256 ids in each row"),
        ({"ids": [1] * 300}, "expected 1 to 256 ids in each row"),
        ({"ids": [1.5]}, "expected token ids, got 1.5"),
        ({"ids": "12"}, "expected token ids"),
        ({"ids": torch.tensor(1)}, "expected token ids, got 1"),
        ({"ids": [1], "text": "a"}, "expected ids alone"),
    ],
)
def test_ids_that_mean_nothing_are_a_sentence(story: LoadedModel, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        story.run(**options)


@pytest.mark.parametrize(
    ("analysis", "words"),
    [
        (lambda run: run.logit_lens(-1, 1), "expected a query from 0"),
        (lambda run: run.logit_lens(2, 99), "expected a stop from 0"),
        (lambda run: run.rollout(how="median"), "expected one out of mean, maximum, rollout"),
        (lambda run: run.ablate([(0, 0)], "halve"), "expected a way out of zero, mean, mask"),
        (lambda run: run.ablation("mask"), "expected a way out of zero, mean, got 'mask'"),
        (lambda run: run.ablate([(0, 0)], "mask", mask=3), "expected masks as a MaskSpec or a dict"),
        (lambda run: run.ablate((0, 1)), r"expected heads as pairs \(layer, head\), got \(0, 1\)"),
        (lambda run: run.ablate([(4,)]), r"expected heads as pairs \(layer, head\), got \[\(4,\)\]"),
        (lambda run: run.ablate([(4, 0, 1)]), r"expected heads as pairs \(layer, head\), got"),
        (lambda run: run.ablate([([], 0)]), r"expected a layer from 0 to 5, got \[\]"),
        (lambda run: unmask.report(run, link=5), "expected a link as a text, got 5"),
        (
            lambda run: run.patch(unmask.load("story").run(TEXT)),
            "of this story, loaded once for both, got story",
        ),
        (lambda run: run.ablate([(0.9, 1.7)]), "expected a layer from 0 to 5, got 0.9"),
        (lambda run: run.ablate([(0, 0)], target=-1), "expected a target from 0 to 4095, got -1"),
        (lambda run: run.ablation(target=4096), "expected a target from 0 to 4095, got 4096"),
        (lambda run: run.served(3.0), "expected chunk sizes as whole numbers, got 3.0"),
        (lambda run: run.served(3, prefix=1.5), "expected a prefix from 0 to 15, got 1.5"),
        (lambda run: run.served(4, second=" and"), "expected a cached prefix of at least 1 token"),
        (lambda run: run.served(4, prefix=2, second=[5, 9]), "expected a second continuation as a text, got"),
        (lambda run: run.served(4, align=["top-left"]), "expected an alignment of bottom-right, top-left, none"),
        (lambda run: run.streamed(-5), "expected a number of tokens from 2 to 4096, got -5"),
        (lambda run: run.packed([9, 9]), "expected documents of at most 16 tokens together, got 18"),
        (lambda run: run.packed(3), "expected the tokens of each document as whole numbers, got 3"),
        (lambda run: run.tree(" cat"), "expected parents or texts as a list, got ' cat'"),
        (lambda run: run.tree([-1], [-1]), "expected a token from 0 to 4095, got -1"),
        (lambda run: run.tree([-1], [1, 2]), r"expected a token for each node \(nodes: 1\), got 2"),
        (lambda run: run.tree([" cat"], [5]), "expected texts without tokens, got both"),
        (lambda run: run.tree([-1, " cat"]), "expected a parent from -1 to 0, got ' cat'"),
        (lambda run: run.head(4, 0).queries([1.5]), "expected queries as positions"),
        (lambda run: run.head_part(4, 0, queries=(4, 6), keys=(0, 3)).queries([0]), "expected queries from 4 to 5"),
        (lambda run: run.head_part(4, 0, queries=3, keys=(0, 3)), "expected a pair of positions, got 3"),
        (lambda _: unmask.cost({}, 40, 16, [30, 30]), "expected documents of at most 40 tokens together, got 60"),
        (lambda _: unmask.cost("causal", 40, 16), "expected masks as a MaskSpec or a dict of its fields"),
        (lambda run: run.merged([]), "expected one of tokens, words, sentences, got \\[\\]"),
        (lambda run: run.score_split(0, torch.tensor([0]), 1, 0), "expected a head from 0 to 5"),
        (lambda _: unmask.capture([1, 2]), "expected a torch.nn.Module, got"),
        (lambda _: unmask.from_transformer_lens({3: torch.ones(2)}), "expected blocks.N.attn.hook_pattern"),
        (lambda _: unmask.from_transformer_lens(None), "expected blocks.N.attn.hook_pattern"),
    ],
)
def test_what_means_nothing_is_a_sentence(run: Run, analysis: Callable[[Run], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        analysis(run)


def test_logit_lens(run: Run) -> None:
    found = shows_itself(run.logit_lens(2, 7))
    expected = logit_lens(run.model, run.trace.batch, run.masks, 0, range(2, 7))
    np.testing.assert_array_equal(found.numpy(), expected.next_probabilities)
    assert found.to_dataframe()["position"].unique().tolist() == [2, 3, 4, 5, 6]


def test_rollout_and_flow(run: Run) -> None:
    for how, by in product(("mean", "maximum", "rollout"), ("tokens", "words")):
        maps = layer_maps(run.trace, 0, run.masks, how, by)
        np.testing.assert_array_equal(shows_itself(run.merged(by).rollout(2, how)).numpy(), maps.maps[2])
    assert run.merged("words").rollout().view.queries == run.head(0, 0, by="words").view.queries
    flow = shows_itself(run.flow(5))
    np.testing.assert_array_equal(flow.numpy(), token_flow(run.trace, 0, run.masks, 5))
    assert f": 6 layers × {len(run.labels)} keys, largest weight" in repr(flow)
    (mask,) = flow.view.blocked.values()
    np.testing.assert_array_equal(mask, np.arange(len(run.labels)) > 5 + np.zeros((6, 1)))  # the later tokens
    assert flow.to_dataframe().columns.tolist() == ["layer", "key", "value"]
    with pytest.raises(ValueError, match="expected a layer from -6 to 5"):
        run.rollout(-7)


def test_ablation(run: Run) -> None:
    target = int(run.trace.batch.ids[0, 9])
    off = AblatedHeads(((4, 0), (3, 1)), "mean")
    expected = outcome(run.model, run.trace.batch, run.masks, 0, 8, off)
    found = shows_itself(run.ablate([(4, 0), (3, 1)], "mean", query=8))
    np.testing.assert_array_equal(found.numpy(), expected.losses)
    effects = shows_itself(run.ablation(query=8)).numpy()
    row = layer_effects(run.model, run.trace.batch, run.masks, 0, 8, target, 4, AblatedHeads(()))
    np.testing.assert_allclose(effects[4], row, atol=1e-6)
    assert repr(run.ablate([(4, 0), (4, 0)], query=8)).startswith("L4 H0 off")
    with pytest.raises(ValueError, match="expected a head from 0 to 5, got 9"):
        run.ablate([(4, 9)])


def test_an_encoders_heads_are_asked_about_what_the_decoder_predicts(tmp_path: Path) -> None:
    """Queries and labels of a prediction are the target's, however short the source."""
    short = unmask.load(save("t5", tmp_path)).run("the cat", target="the cat sat on a mat and then it saw one")
    encoder, labels = short.attention("encoder"), short.trace.batch.pieces[0]
    assert len(encoder.labels) < 5 < len(labels)
    assert f"after {labels[-1]} " in repr(encoder.ablate([(0, 0)]))
    assert repr(encoder.ablation(query=5)).endswith(f"after {labels[5]}")
    assert f"after {labels[5]} the prediction" in repr(encoder.logit_lens(5, 6))


def test_runs_from_other_sources_have_no_difference(tmp_path: Path) -> None:
    """The sources have the same number of tokens, and the target is the same."""
    model = unmask.load(save("t5", tmp_path))
    one, other = (model.run(text, target="the cat sat").attention("cross") for text in ("a big mat", "a red ball"))
    same = one.difference(one.under({"padding": False}))
    assert np.abs(same.numpy()).max() == 0
    assert repr(same).endswith(": no weight differs")
    with pytest.raises(ValueError, match="expected two runs on the same tokens"):
        one.difference(other)


def test_a_score_and_what_a_head_adds(run: Run) -> None:
    found = shows_itself(run.score_split(4, 0, 9, 5))
    expected = score_split(run.model, run.trace, 0, 4, 0, 9, 5)
    np.testing.assert_array_equal(found.numpy(), expected.terms)
    assert found.numpy().sum() == pytest.approx(float(run.trace.stages(4, 0).scaled[9, 5]), abs=1e-4)
    weights = run.head(4, 0).weights[9]
    norms = np.linalg.norm(run.v(4)[0], axis=-1)
    np.testing.assert_allclose(shows_itself(run.value_weighted(4, 0, 9)).numpy(), weights * norms, rtol=1e-4)
    assert shows_itself(run.direct_effect(4, 0, 9)).numpy()[0] > 0
    for wrong in ((6, 0, 9), (4, 6, 9), (4, 0, 99)):
        with pytest.raises(ValueError, match=r"expected a (layer|head|query) from 0"):
            run.value_weighted(*wrong)


def test_a_capped_score_is_that_of_the_head(tmp_path: Path) -> None:
    run = unmask.load(str(save("gemma2", tmp_path))).run("the cat sat on a mat")
    score, found = float(run.head(2, 1).scaled[4, 1]), run.score_split(2, 1, 4, 1)
    assert f"on 1: the is {signed(found.numpy().sum())}; {signed(score)} goes into the softmax" in repr(found)


@pytest.mark.parametrize(
    ("texts", "options", "empty"),
    [
        (["the dog ran home"], {"masks": {"drawn": [["block", 3, 0, 3, 9]]}}, 3),
        (["the cat", "the dog ran home"], {"pad_side": "left"}, 0),
    ],
)
def test_a_row_that_attends_to_nothing_adds_nothing(
    texts: list[str], options: dict, empty: int, tmp_path: Path
) -> None:
    run = unmask.load(str(save("llama", tmp_path))).run(texts, **options)
    found = run.score_split(1, 0, 3, empty).numpy()
    assert found.ndim == 2
    assert found.sum() == pytest.approx(float(run.trace.stages(1, 0).scaled[3, empty]), abs=1e-4)
    assert not np.abs(run.direct_effect(1, 0, empty).numpy()).any()


def test_an_atlas(story: LoadedModel) -> None:
    found = story.atlas(["Once upon a time there was a cat.", "The dog ran and the dog ran."])
    assert found.numpy().shape == (len(found.names), 6, 6)
    table = found.to_dataframe()
    assert len(table) == 36
    np.testing.assert_allclose(table["previous"], found.numpy()[0].ravel())
    assert "<iframe" in found._repr_html_()


def test_tables_of_a_run_and_a_head(run: Run) -> None:
    table = run.to_dataframe()
    np.testing.assert_array_equal(table["induction"], run.measures()["induction"].ravel())
    cells = run.head(4, 0).to_dataframe()
    assert cells.columns.tolist() == ["query", "key", "query token", "key token", "weight", "score", "blocked"]
    assert cells[cells["key"] > cells["query"]]["blocked"].all()
    part = run.head_part(4, 0, queries=(5, 9), keys=(2, 7)).to_dataframe()
    expected = cells[cells["query"].between(5, 8) & cells["key"].between(2, 6)]
    assert (part[["query", "key"]].to_numpy() == expected[["query", "key"]].to_numpy()).all()
    np.testing.assert_allclose(part["weight"], expected["weight"], atol=1e-6)
    assert run.rollout(2).to_dataframe()["score"].isna().all()
    assert repr(unmask.load("story").run(ids=[5]).mask(1, 0)).endswith("1 query × 1 key, 1 cell allowed")
    arcs = run.arcs(4, [0, 3]).to_dataframe()
    assert arcs["head"].unique().tolist() == ["L4 H0", "L4 H3"]
    np.testing.assert_array_equal(arcs["weight"], run.arcs(4, [0, 3]).numpy().ravel())
    assert (arcs[: len(cells)][cells.columns] == cells).to_numpy().all()


def test_numbers_may_be_numpys(run: Run) -> None:
    head, three = run.arcs(4, np.int64(0)), np.int64(3)
    np.testing.assert_array_equal(head.numpy()[0], run.head(4, 0).numpy())
    assert run.served(three, prefix=np.int64(1)).calls == run.served(3, prefix=1).calls
    assert run.under({"sliding": three}).masks == run.under({"sliding": 3}).masks
    assert unmask.cost({"sliding": three}, 40, 16).allowed == unmask.cost({"sliding": 3}, 40, 16).allowed


def test_a_row_is_compared_with_the_same_tokens_in_another(story: LoadedModel) -> None:
    lifted = story.run([TEXT, "A red ball"], row=1, causal=False)
    other = story.run(["A red ball", TEXT], row=0)
    expected = np.abs(lifted.numpy() - other.numpy()).max((2, 3))
    np.testing.assert_allclose(lifted.difference(other).numpy(), expected, atol=1e-6)


def test_padding_is_no_token_of_a_row(story: LoadedModel) -> None:
    padded = story.run([TEXT, "A red ball"], row=1)
    assert repr(padded) == "story, 4 tokens + 12 padding, causal and padding masks"
    assert padded.rollout().query == padded.merged("words").rollout().query == 3
    assert padded.head(4, 0).queries([2]).line.startswith("L4 H0, mean of 1 query: 1 query × 16 keys")


def test_what_is_served_prints_its_sizes_without_its_arrays(run: Run) -> None:
    for found, words in (
        (run.served(chunks=4, prefix=3), r"CallsComparison\(calls=\[\(3, 3\), \(4, 7\), .*twice=0, missed=0"),
        (run.tree([" cat", " dog"]), r"DraftTree\(tokens=.*labels=\['·cat', '·dog'\], parents=\[-1, -1\]"),
        (run.packed("."), r"PackedLosses\(sizes=\[.*differences=\{'both': "),
        (run.streamed(30, window=9), r"StreamedText\(window=9, sinks=4, step=8, relative=False, done=30\)"),
        (unmask.cost({"sliding": 3}, 40, 16), r"MaskCost\(tokens=40, block=16, allowed=117, kernels="),
    ):
        assert re.match(words, repr(found))
        assert "array" not in repr(found)


def test_a_stream_that_fits_the_cache_has_no_mean_beyond_it(run: Run) -> None:
    assert np.isnan(run.streamed(20).means).all()
    of_ids = run.trace.batch.ids[0].tolist()
    assert list(unmask.load("story").run(ids=of_ids).streamed(40, window=9).ids) == (of_ids * 3)[:40]
    found = run.streamed(30, window=9, sinks=2, step=3)
    np.testing.assert_allclose(found.means, found.losses[:, 11:].mean(1), atol=1e-6)


@pytest.mark.parametrize("by", ["words", "sentences"])
def test_every_picture_of_a_run_may_be_merged(run: Run, by: str) -> None:
    merged = run.merged(by)  # type: ignore[arg-type]
    count = len(merged.head(4, 0).view.queries)
    assert count < len(run.labels)
    assert merged.query == count - 1
    assert f"merged into {by}" in repr(merged)
    np.testing.assert_array_equal(run.head(4, 0, by=by).numpy(), merged.numpy()[4, 0])  # type: ignore[arg-type]
    assert merged.heads().numpy().shape[2:] == (count, count)
    for picture in (merged.heads(), merged.tokens(4, 0), merged.arcs(4, [0, 1]), unmask.report(merged)):
        assert "<html" in picture.page()
    lifted = merged.under({"causal": False})
    expected = np.abs(merged.numpy() - lifted.numpy()).max((2, 3))
    np.testing.assert_allclose(shows_itself(merged.difference(lifted)).numpy(), expected, atol=1e-6)
    assert merged.merged("tokens").by == "tokens"


def test_queries_of_a_head_together(run: Run) -> None:
    head = run.head(4, 0)
    np.testing.assert_allclose(head.queries(range(3, 6)).numpy()[0], head.weights[3:6].mean(0), atol=1e-6)
    np.testing.assert_allclose(head.queries([3, 8], "sum").numpy()[0], head.weights[[3, 8]].sum(0), atol=1e-6)
    assert "<html" in head.queries([3, 8]).page()
    assert "mean of 2 queries:" in head.queries(query for query in (3, 8)).line
    some = run.under({"drawn": [["block", 3, 0, 3, 15]], "layers": [4]}).head(4, 0).queries([3, 8])
    np.testing.assert_allclose(some.numpy()[0], head.weights[8], atol=1e-6)
    assert "mean of 2 queries, 1 without attention:" in some.line


def test_what_is_of_one_head_refuses_several_and_changes(run: Run) -> None:
    other = run.under({"sliding": 3})
    arcs, change = run.arcs(4, [0, 1]), run.head(4, 0).difference(other.head(4, 0))
    for picture in (arcs, change, run.flow()):
        with pytest.raises(ValueError, match="expected the weights of one head for several queries, got "):
            picture.queries([1, 2])
    with pytest.raises(ValueError, match="expected one head for a difference, got L4 H0, L4 H1"):
        arcs.difference(other.arcs(4, [2, 3]))
    both = [one.head(4, 0).queries([3, 8]) for one in (run, other)]
    np.testing.assert_allclose(both[0].difference(both[1]).numpy(), both[0].numpy() - both[1].numpy(), atol=1e-6)
    flows = run.flow().difference(other.flow())
    assert list(flows.to_dataframe().columns) == ["layer", "key", "value"]
    np.testing.assert_allclose(flows.numpy(), run.flow().numpy() - other.flow().numpy(), atol=1e-6)
    assert "<html" in flows.page()


@pytest.mark.parametrize(
    "masks", [{"causal": False, "layers": [1]}, {"sinks": 2}, {"drawn": [["open", 3, 0, 9, 9]]}, {"sliding": 2}]
)
def test_a_head_off_by_a_mask_sees_itself_alone_whatever_masks_the_run_has(run: Run, masks: dict) -> None:
    other = run.under(masks)
    alone = other.ablate([(4, 0)], "mask", mask=MaskSpec(sliding=1)).numpy()
    np.testing.assert_allclose(other.ablate([(4, 0)], "mask").numpy(), alone, atol=1e-5)
    assert np.nanmax(np.abs(alone - other.losses)) > 1e-3


def test_a_pixel_names_the_mask_that_blocks_it() -> None:
    near = unmask.digit(np.zeros(64, int), 3, masks={"causal": False, "sliding": 4}).pixels(2, 1, 20)
    header, _ = unpacked(near.canvas().packet)
    assert header["names"][0].endswith("attends to r0 c0 (level 0): blocked by sliding")


def test_a_picture_has_ids_and_no_text() -> None:
    run, other = (unmask.digit(np.full(64, level), 3) for level in (0, 5))
    assert np.ptp(run.patch(other, answer=12, instead_of=10).numpy()) > 0
    with pytest.raises(ValueError, match="expected a text for the mask 'documents'"):
        unmask.digit(np.zeros(64), 3, masks={"documents": "."})


def test_help_lists_it_all() -> None:
    assert {"capture", "from_transformer_lens", "attentions", "load"} <= set(dir(unmask))
    names = {"q", "k", "v", "logits", "residual", "logit_lens", "rollout", "flow", "ablate", "ablation", "score_split"}
    assert names <= set(dir(Run))
    assert all(getattr(Run, name).__doc__ for name in names)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_ids_of_the_network_that_the_tokenizer_has_not_are_taken(tmp_path: Path, family: str) -> None:
    model = unmask.load(save(family, tmp_path))
    last = model.model.num_ids - 1
    assert last > model.model.vocabulary
    run = model.run(ids=[3, 5, last])
    assert run.labels[-1] == f"⟨id {last}⟩"
    assert run.tree([-1], [last]).tokens == [last]
    assert run.patch(run, answer=last).numpy().shape == (3, 4)
    for call in (lambda: model.run(ids=[last + 1]), lambda: run.patch(run, answer=last + 1)):
        with pytest.raises(ValueError, match=f"from 0 to {last}, got {last + 1}"):
            call()
