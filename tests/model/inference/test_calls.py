"""Tests that chunked calls, draft trees and packed documents equal one call, each branch and each document alone.

Every wrong convention must give something else.
Run: python -m pytest tests/model/inference/test_calls.py
"""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import unmask
from model import catalog
from model.base import Model
from model.huggingface import adapter
from model.inference.calls import ROUNDING, compare_calls, continuation_ids, ends_of, pack
from model.inference.draft_tree import draft, ordered, verify_tree
from model.inference.streaming import stream
from model.kv_cache import batch_of
from model.spec import MaskSpec
from serving.settings import Settings
from tests.model.huggingface import families
from tests.model.huggingface.test_families import saved
from viz.inference import calls_sentence, packing_figure, packing_sentence

TEXT = "Once upon a time there was a cat, a dog and one little bird. It was red."
FAMILIES = ("story", "gpt2", "llama", "gemma3", "gpt_oss", "qwen3_next", "lfm2", "bamba", "falcon_h1", "bloom")
WRONG = 100  # least difference of a wrong convention, times rounding


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(request.param, tmp_path_factory.mktemp(request.param))


def load(name: str, folder: Path, **settings: str) -> Model:
    """Return the story model, or a tiny random model of a family."""
    if name == "story":
        return catalog.load("story")
    path = families.save(name, folder) if name in families.DECODERS else saved(name, folder)
    return adapter.load(str(path), settings=Settings(**settings))


def ids_of(model: Model, count: int = 17) -> list[int]:
    """Return different tokens, none of them special."""
    return [5 + 3 * index % 50 for index in range(count)]


@pytest.mark.parametrize(("chunks", "prefix"), [([5, 3, 2], 7), (4, 0), (1, 0), ([17], 0)])
def test_calls_give_what_one_call_gives(model: Model, chunks: list[int] | int, prefix: int) -> None:
    batch = batch_of(model, tuple(ids_of(model)))
    ends = ends_of(17, chunks, prefix)
    right = compare_calls(model, batch, model.standard, ends)
    print(f"{model.name}: {right.difference / right.size:.1e} of the largest logit")
    assert right.difference <= right.tolerance
    np.testing.assert_allclose(right.losses, right.in_one, rtol=1e-4)
    if len(ends) > 1:
        wrong = compare_calls(model, batch, model.standard, ends, "top-left")
        assert wrong.difference >= WRONG * wrong.tolerance
        assert wrong.missed > 0
    if chunks != 1 and len(ends) > 1:  # a single query needs no mask
        none = compare_calls(model, batch, model.standard, ends, "none")
        assert none.difference >= WRONG * none.tolerance
        assert none.extra > 0


def test_two_continuations_share_a_prefix(model: Model) -> None:
    batch = batch_of(model, tuple(ids_of(model)))
    more = " said the cat"
    found = compare_calls(model, batch, model.standard, [7, 12, 17], second=more)
    count = len(continuation_ids(model, more)[0])
    assert found.difference <= found.tolerance
    assert found.calls == [(7, 7), (5, 12), (5, 17), (count, 7 + count)]
    np.testing.assert_array_equal(found.numpy()[17:, 7:17], -1)


def test_a_continuation_has_none_of_the_tokens_around_a_text() -> None:
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=families.word_tokenizer("<s> $A </s>"), pad_token="<pad>")
    run = unmask.load(families.random_network("llama"), tokenizer).run("the cat sat on a mat")
    assert run.labels[-1] == "</s>"
    assert run.tree(["on a mat"]).labels == ["on", "a", "mat"]
    assert run.served(chunks=2, prefix=2, second="ball").calls[-1] == (1, 3)
    assert run.model.label(run.streamed(20, window=6, sinks=1, step=2).ids[7]) == "the"


@pytest.mark.parametrize(("text", "more"), [("a mat", " on a hat"), ("b", "b sat"), ("on", "\n a"), ("a\n", "\non")])
def test_a_continuation_has_no_space_that_a_tokenizer_puts_before_a_text(text: str, more: str) -> None:
    """Llama 2's tokenizer puts one. The continuation has the tokens that end both texts tokenized together."""
    own = Tokenizer(models.BPE(unk_token="<unk>"))
    own.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(special_tokens=["<unk>", "<pad>"], vocab_size=families.VOCABULARY)
    own.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    own.train_from_iterator(["the cat sat on a mat and a hat", "b", "\n"], trainer)
    own.pre_tokenizer = pre_tokenizers.Sequence([])  # none, like Llama 2's
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<pad>", unk_token="<unk>")
    llama = unmask.load(families.random_network("llama"), tokenizer)
    both = llama.run(text + more).labels
    assert llama.run(text).tree([more]).labels == both[len(llama.run(text).labels) :]


def test_a_second_continuation_is_split_at_the_separators_of_its_prefix() -> None:
    """Its masks are made from the prefix and the continuation together."""
    for masks in ({"documents": "."}, {"documents": ".", "positions": "documents"}):
        run = unmask.load("story").run("The cat sat. The dog ran away", masks=masks)
        found = run.served(chunks=4, prefix=7, second=" on. The king")
        assert found.difference <= found.tolerance


def test_each_cell_is_computed_once_by_its_call() -> None:
    found = unmask.load("story").run(TEXT).served(chunks=[8, 7, 3], prefix=3)
    assert found.calls == [(3, 3), (8, 11), (7, 18), (3, 21)]
    cells = found.numpy()
    assert (found.computed, found.twice, found.missed, found.extra) == (21 * 22 // 2, 0, 0, 0)
    rows = np.repeat([0, 1, 2, 3], [3, 8, 7, 3])
    np.testing.assert_array_equal(cells, np.where(np.tril(np.ones((21, 21), bool)), rows[:, None], -1))


def test_under_other_masks_a_call_computes_what_they_allow() -> None:
    run = unmask.load("story").run(TEXT, masks={"sliding": 4, "sinks": 1})
    found = run.served(chunks=7)
    assert found.difference <= found.tolerance
    np.testing.assert_array_equal(found.numpy() >= 0, run.mask(0, 0).numpy())


def test_a_wrong_mask_in_later_layers_alone_is_told(tmp_path: Path) -> None:
    qwen2 = load("qwen2", tmp_path)  # a window of 4 from its second layer on
    batch, ends = batch_of(qwen2, tuple(ids_of(qwen2))), ends_of(17, 1)
    wrong = compare_calls(qwen2, batch, qwen2.standard, ends, "none")
    assert (wrong.missed, wrong.extra) == (0, 0)
    assert wrong.difference >= WRONG * wrong.tolerance
    assert "but others in later layers" in calls_sentence(wrong, second=False)
    for share, text in ((2e-4, "almost the logits of one call"), (0.3, "does not carry its state")):
        far = replace(wrong, later=False, twice=0, differences=np.array([share * wrong.size]))
        assert text in calls_sentence(far, second=False)
    assert not compare_calls(qwen2, batch, qwen2.standard, ends).later


@pytest.mark.parametrize(
    ("chunks", "prefix", "message"),
    [([8, 8], 4, r"chunks of 20 tokens together, after a cached prefix of 4, or one size for all, got 8 \+ 8 = 16"),
     ([24, 0], 0, "at least 1 token, got 0"), (0, 0, "at least 1 token"), (4, 24, "a prefix from 0 to 23, got 24")],
)  # fmt: skip
def test_sizes_that_do_not_fit(chunks: list[int] | int, prefix: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ends_of(24, chunks, prefix)


def test_cells_of_two_continuations() -> None:
    found = unmask.load("story").run(TEXT).served(chunks=30, prefix=3, second=" said")
    cells = found.numpy()
    tokens = len(cells) - 1
    assert (found.computed, found.twice) == (tokens * (tokens + 1) // 2 + 4, 0)
    assert np.flatnonzero(cells[-1] == 2).tolist() == [0, 1, 2, tokens]


PARENTS = [-1, -1, 0, 0, 1, 2, 2]


@pytest.mark.parametrize("order", ["depth", "breadth"])
@pytest.mark.parametrize("family", ["story", "gpt2", "gemma3", "gpt_oss"])  # the last two have windows of 3
def test_a_tree_gives_each_branch_as_alone(family: str, order: str, tmp_path: Path) -> None:
    story = load(family, tmp_path)
    right = verify_tree(story, ids_of(story), PARENTS, order=order)
    wrong = verify_tree(story, ids_of(story), PARENTS, order=order, positions="row")
    assert right.difference <= right.tolerance
    assert wrong.difference >= WRONG * wrong.tolerance
    assert right.positions[17:] == [17 + depth for depth in {"depth": [0, 1, 2, 2, 1, 0, 1]}.get(
        order, [0, 0, 1, 1, 1, 2, 2])]  # fmt: skip
    assert right.tokens_per_call == 4  # the model's likeliest tokens at each of three depths, and one more


def test_a_node_sees_the_text_and_its_ancestors_alone() -> None:
    story = catalog.load("story")
    found = verify_tree(story, ids_of(story, 3), PARENTS, list(range(10, 17)), order="breadth")
    expected = np.tril(np.ones((10, 10), bool))
    for node, path in enumerate([[0], [1], [0, 2], [0, 3], [1, 4], [0, 2, 5], [0, 2, 6]]):
        expected[3 + node, 3:] = np.isin(np.arange(7), path)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert found.tokens == list(range(10, 17))


def test_verification_accepts_what_the_model_would_write() -> None:
    story = catalog.load("story")
    ids = ids_of(story)
    first, second = draft(story, ids, [-1, 0])
    found = verify_tree(story, ids, [-1, 0, -1], [first, second + 1, 9])
    assert [found.tokens[node] for node in found.accepted] == [first]
    assert not verify_tree(story, ids, [-1], [first + 1]).accepted


def test_typed_branches_share_what_they_begin_with() -> None:
    run = unmask.load("story").run("Once upon a time")
    found = run.tree([" there was a cat", " there was a dog", " and"])
    assert found.labels == ["·there", "·was", "·a", "·cat", "·dog", "·and"]
    assert found.parents == [-1, 0, 1, 2, 2, -1]
    assert found.difference <= found.tolerance
    with pytest.raises(ValueError, match="1 to 64 nodes"):
        run.tree([" cat dog" * 40])


def test_more_branches_than_tokens_are_refused(tmp_path: Path) -> None:
    small = load("gpt2", tmp_path)
    assert sorted(draft(small, ids_of(small, 3), [-1] * 61)) == list(range(61))
    with pytest.raises(ValueError, match="at most 61 branches at a node, as many as there are tokens, got 62"):
        draft(small, ids_of(small, 3), [-1] * 62)


@pytest.mark.parametrize("order", ["depth", "breadth"])
def test_the_order_of_a_tree(order: str) -> None:
    assert ordered(PARENTS, order) == ([0, 2, 5, 6, 3, 1, 4] if order == "depth" else [0, 1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("parents", "message"), [([0], "a parent from -1 to -1"), ([], "1 to 64 nodes"), ([-1] * 65, "1 to 64 nodes")]
)
def test_what_is_no_tree(parents: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unmask.load("story").run(TEXT).tree(parents)


@pytest.mark.parametrize("family", ["story", "llama"])
def test_packing_tells_the_conventions_apart(family: str, tmp_path: Path) -> None:
    model = load(family, tmp_path)
    batch = model.encode(["the cat sat . a big mat . and then it saw one"])
    found = pack(model, batch, ".")
    np.testing.assert_allclose(found.packed["both"], found.alone, rtol=1e-4)
    assert found.differences["both"] <= found.tolerance
    assert min(found.differences["positions"], found.differences["neither"]) >= WRONG * found.tolerance
    assert found.differences["positions"] != found.differences["neither"]
    relative = family == "llama"  # rotary positions: only distances count
    assert (found.differences["mask"] <= found.tolerance) == relative
    assert sum(found.sizes) == batch.ids.shape[1]


@pytest.mark.parametrize("family", ["bloom", "falcon"])
def test_a_model_of_its_own_positions_is_packed_without_others(family: str, tmp_path: Path) -> None:
    """ALiBi takes distances within the row: a mask alone separates documents, and a tree cannot be verified."""
    model = load(family, tmp_path)
    found = pack(model, model.encode(["the cat sat . a big mat . and then it saw one"]), ".")
    assert found.differences["mask"] <= found.tolerance
    assert [*found.packed] == ["mask", "neither"]
    assert "this model computes its own" in packing_sentence(found)
    assert [trace["name"] for trace in packing_figure(found).to_dict()["data"]] == ["alone", "mask only", "neither"]
    with pytest.raises(ValueError, match=r"computes its own positions: .* choose a model that takes others"):
        verify_tree(model, ids_of(model), PARENTS)


def test_where_no_convention_keeps_documents_apart_there_are_no_others(tmp_path: Path) -> None:
    model = load("lfm2", tmp_path)
    sentence = packing_sentence(pack(model, model.encode(["the cat sat . a big mat . and then it saw one"]), "."))
    assert "No convention gives the logits of each document alone. Largest differences: mask and" in sentence


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "gemma3"])
def test_rounding_in_16_bits_is_no_fault(family: str, precision: str, tmp_path: Path) -> None:
    model = load(family, tmp_path, precision=precision)
    calls = compare_calls(model, batch_of(model, tuple(ids_of(model))), model.standard, ends_of(17, 4, 3))
    assert "up to rounding" in calls_sentence(calls, second=False)
    tree = verify_tree(model, ids_of(model), PARENTS)
    assert tree.difference <= tree.tolerance
    found, relative = (
        pack(model, model.encode(["the cat sat . a big mat . and then it saw one"]), "."),
        family != "gpt2",
    )
    equal = {name for name, difference in found.differences.items() if difference <= found.tolerance}
    assert equal == ({"both", "mask"} if relative else {"both"})
    assert stream(model, ids_of(model), window=6, sinks=1, step=2).relative == relative


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_rounding_at_late_positions_is_no_difference_and_a_slight_one_is(family: str, tmp_path: Path) -> None:
    """Rotary angles lose digits at late positions. Learned positions with tiny weights make a real difference."""
    config = copy.deepcopy(families.DECODERS[family])
    config.max_position_embeddings = 2048  # for both: GPT-2 calls it n_positions
    network = families.random_network(family, config)
    if family == "gpt2":
        with torch.no_grad():
            network.transformer.wpe.weight *= 2e-5
    network.save_pretrained(tmp_path)
    families.save_tokenizer(tmp_path)
    model = adapter.load(str(tmp_path), settings=Settings())
    batch = batch_of(model, tuple(ids_of(model, 1960)))
    found = pack(model, batch, [9, 1900])
    assert found.differences["both"] <= found.tolerance
    assert (found.differences["mask"] <= found.tolerance) == (family == "llama")
    assert min(found.differences["positions"], found.differences["neither"]) >= WRONG * found.tolerance


def test_documents_by_their_lengths() -> None:
    run = unmask.load("story").run("the cat sat . a big mat . and then it saw one")
    sizes = run.packed(".").sizes
    by_lengths = run.packed(sizes[:-1])
    assert by_lengths.sizes == sizes
    for name, losses in run.packed(".").packed.items():
        np.testing.assert_array_equal(by_lengths.packed[name], losses)


def test_one_document_is_not_packed() -> None:
    with pytest.raises(ValueError, match="expected documents of 1 to 21 tokens, got 0"):
        unmask.load("story").run(TEXT).packed([5, 0])
    with pytest.raises(ValueError, match="expected a text of several documents"):
        unmask.load("story").run(TEXT).packed("#")


def test_a_batch_may_say_where_its_tokens_stand() -> None:
    story = catalog.load("story")
    batch = batch_of(story, (9, 8, 7))
    moved = unmask.runs.replace(batch, positions=torch.tensor([[4, 5, 6]]))
    longer = batch_of(story, (1, 1, 1, 1, 9, 8, 7))
    spec = MaskSpec(drawn=unmask.runs.spec_of(MaskSpec(), {"drawn": [["block", 4, 0, 6, 3]]}).drawn)
    alone, within = (story.readout(story.run(one, spec).states)[0, -3:] for one in (moved, longer))
    assert float((alone - within).abs().max()) <= ROUNDING * float(alone.abs().max())
