"""Tests of tokens merged into words and sentences."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model import masks, trace
from model.base import Model
from model.heads.merging import (
    BY,
    By,
    groups_of,
    groups_of_labels,
    merge_groups,
    merged,
    merged_head,
    merged_labels,
    merged_weights,
    over_queries,
)
from model.heads.survey import every_weight, survey, thumbnails
from model.heads.view import HeadView, coarser, cropped
from model.masks import MaskSpec
from model.text import TokenBatch

TEXT = 'Once upon a time, there was Lily\'s cat. "It ran!" She said so.'
CAUSAL = np.triu(np.ones((5, 5), bool), 1)
WEIGHTS = np.array(
    [[1, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0.25, 0.75, 0, 0], [0, 0, 0, 1, 0], [0.125, 0, 0.375, 0, 0.5]],
    np.float32,
)
VIEW = HeadView(WEIGHTS, np.log(WEIGHTS + 0.25), {"causal": CAUSAL}, list("abcde"), list("abcde"))


def split(labels: list[str], by: By) -> list[str]:
    return merged_labels(labels, groups_of_labels(labels, by))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["the", "un", "##believ", "##able", "cat", ".", "[SEP]"], ["the", "un##believ##able", "cat", ".", "[SEP]"]),
        (["Ġthe", "Ġun", "able", "Ġcat", "'s", ",", '."'], ["Ġthe", "Ġunable", "Ġcat's", ',."']),
        (["▁", "Hi", "▁you", "⟨F0 9F⟩", "⟨98⟩"], ["▁Hi", "▁you", "⟨F0 9F 98⟩"]),
        (["▁you", "·⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩", "!"], ["▁you", "·😀!"]),
        (["·⟨E4⟩", "⟨BD⟩", "⟨A0⟩"], ["·你"]),
        (["⟨", "41", "⟩"], ["⟨", "41", "⟩"]),
        (["·你", "好", "。"], ["·你", "好", "。"]),
        (["<pad>", "<pad>", "<s>", "·a", "b"], ["<pad> × 2", "<s>", "·ab"]),
        (["·a", "b", "[unused1]", "[EOS2]", "[unused1]"], ["·ab", "[unused1]", "[EOS2]", "[unused1]"]),
        (["cat", "dog"], ["cat", "dog"]),
        (["##", "·My", "·head", "ing", "⏎", "·here"], ["##", "·My", "·heading", "⏎", "·here"]),
        (["·မ", "ြန်", "·ខ", "្មែរ", "·𠀀", "𠀁"], ["·မြန်", "·ខ្មែរ", "·𠀀", "𠀁"]),
        (["·o", "'", "clock", "·'", "a", "'", "."], ["·o'clock", "·'", "a", "'."]),
        (["Ġthe", "</s>", "", "😀", "Ġb"], ["Ġthe", "</s>", "😀", "Ġb"]),
        (["·The", "·", "▦1", "▦2", "What", "·is"], ["·The", "·", "▦1", "▦2", "What", "·is"]),
        (["class 3", "r0 c0: 6", "r0 c1: 6", "r0 c2: 0"], ["class 3", "r0 c0: 6", "r0 c1: 6", "r0 c2: 0"]),
        (["r0 c4", "r0 c5", "across", "a", "large"], ["r0 c4", "r0 c5", "across", "a", "large"]),
    ],
)
def test_words_by_the_labels_of_several_tokenizers(labels: list[str], words: list[str]) -> None:
    assert split(labels, "words") == words


def test_sentences_end_at_a_stop_before_a_space_and_at_a_line_s_end() -> None:
    labels = ["<s>", "Pi", "·is", "·3", ".", "14", "!", "·No", "⏎", "Yes", "·。"]
    assert split(labels, "sentences") == ["<s>", "Pi·is·3.14!", "·No⏎", "Yes·。"]
    assert split(["·好", "。", "吃", "饭", "！", "”", "你"], "sentences") == ["·好。", "吃饭！”", "你"]
    assert split(["Look", ":", "▦1", "▦2", "What", "·is"], "sentences") == ["Look:", "▦1", "▦2", "What·is"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("वह घर गया। मैं यहाँ हूँ। ठीक है।", 3),
        ("هل أنت بخير؟ نعم أنا بخير.", 2),
        ("وہ گھر گیا۔ میں یہاں ہوں۔", 2),
        ("Բարեւ։ Ինչպես ես։", 2),
        ("他走了｡他來了｡", 2),
        ("さて ３．１４は円周率です。はい。", 2),
        ("သူ သွားပြီ။ သူ လာပြီ။", 2),
    ],
)
def test_sentences_end_at_the_stops_of_other_scripts(text: str, sentences: int) -> None:
    labels = ["·" if one == " " else one for one in text]
    assert len(groups_of_labels(labels, "sentences")) == sentences


def test_a_part_of_a_view_keeps_what_the_view_says_of_itself() -> None:
    rows = replace(VIEW, layers=True, merged=True, group=3, available=frozenset({"causal"}))
    for made in (cropped(rows, (0, 2), (1, 4)), coarser(rows, 2)):
        assert (made.layers, made.merged, made.group, made.available) == (True, True, 3, {"causal"})


@pytest.mark.parametrize("decoder", ["bytes", "characters"])
def test_several_tokens_of_one_character_are_no_special_tokens(decoder: str) -> None:
    """As with byte fallback, or a normalizer that writes ½ as 1, ⁄ and 2: only the first such token has text."""
    text = "Tom saw ½ fox. Ok"
    parts = ["⟨C2⟩", "⟨BD⟩", "⟨80⟩"] if decoder == "bytes" else ["1", "⁄", "2"]
    labels = ("<s>", "·Tom", "·saw", "·", *parts, "·fox", ".", "·Ok", "</s>", "<pad>")
    ends = (0, 3, 7, 8, 9, 9, 9, 13, 14, 17, 17, 17)
    ids = torch.zeros(1, len(labels), dtype=torch.long)
    batch = TokenBatch(ids, ids == 0, (labels,), texts=(text,), ends=(ends,))
    begins = {by: groups_of(batch, 0, by).tolist() for by in BY[1:]}
    assert begins == {"words": [0, 1, 2, 3, 7, 8, 9, 10, 11], "sentences": [0, 1, 9, 10, 11]}


def test_the_special_tokens_of_a_chat_template_stand_alone() -> None:
    parts = [
        "<|begin|>",
        "<|start|>",
        "user",
        "<|end|>",
        "Who",
        " is",
        " he",
        "?",
        "<|eot|>",
        "<|start|>",
        "ai",
        "[/INST]",
        "[TOOL_CALLS]",
        "[gMASK]",
    ]
    labels = tuple(part.replace(" ", "·") for part in parts)
    ends = tuple(len("".join(parts[:count])) for count in range(1, len(parts) + 1))
    ids = torch.zeros(1, len(parts), dtype=torch.long)
    batch = TokenBatch(ids, ids == 0, (labels,), texts=("".join(parts),), ends=(ends,))
    assert groups_of(batch, 0, "words").tolist() == list(range(len(parts)))
    assert groups_of(batch, 0, "sentences").tolist() == [0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13]


def test_unknown_words_are_words_of_their_sentence() -> None:
    text, labels = "The 日本 ☃ sat. It is", ("[CLS]", "the", "[UNK]", "[UNK]", "sat", ".", "it", "is", "[SEP]")
    ends = (0, 3, 6, 8, 12, 13, 16, 19, 19)
    ids = torch.zeros(1, len(labels), dtype=torch.long)
    batch = TokenBatch(ids, ids == 0, (labels,), texts=(text,), ends=(ends,))
    assert groups_of(batch, 0, "sentences").tolist() == [0, 1, 6, 8]
    assert groups_of(batch, 0, "words").tolist() == list(range(len(labels)))


def test_a_text_is_split_where_it_was_read(story: Model) -> None:
    batch = story.encode([TEXT, "Hi"], "left")
    words = merged_labels(batch.pieces[0], groups_of(batch, 0, "words"))
    assert words[5:11] == [",", "·there", "·was", "·Lily's", "·cat", "."]
    sentences = merged_labels(batch.pieces[0], groups_of(batch, 0, "sentences"))
    assert sentences == ["<start>", "Once·upon·a·time,·there·was·Lily's·cat.", '·"It·ran!"', "·She·said·so."]
    assert groups_of(batch, 1, "tokens").tolist() == list(range(batch.ids.shape[1]))
    assert len(groups_of(batch, 1, "words")) == 3  # padding, the start token and the word


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize(("pad_side", "begins"), [("left", [0, 3, 4]), ("right", [0, 1, 2])])
def test_a_start_token_that_is_the_padding_token_is_no_padding(read: bool, pad_side: str, begins: list[int]) -> None:
    """As in the targets of T5 and Marian."""
    real, padding = [("<pad>", 0), ("·on", 2)], [("<pad>", 0 if pad_side == "left" else 2)] * 3
    labels, ends = zip(*(padding + real if pad_side == "left" else real + padding), strict=True)
    keep = torch.tensor([[pad_side == "right"] * 2 + [False] + [pad_side == "left"] * 2])
    batch = TokenBatch(torch.zeros(1, 5, dtype=torch.long), keep, (labels,))
    if read:
        batch = replace(batch, texts=("on",), ends=(ends,))
    assert [groups_of(batch, 0, by).tolist() for by in BY[1:]] == [begins, begins]


def test_a_merged_cell_is_the_sum_over_keys_and_the_mean_over_queries() -> None:
    found = merged(VIEW, np.array([0, 1, 3]), np.array([0, 2, 3]))
    np.testing.assert_allclose(found.weights, [[1, 0, 0], [0.625, 0.375, 0], [0.0625, 0.1875, 0.75]])
    assert found.queries == ["a", "bc", "de"]
    assert found.keys == ["ab", "c", "de"]
    scores = np.log(np.exp(VIEW.scaled[1:3, :2]).sum(1)).mean()  # a score whose softmax is the sum of their weights
    assert found.scaled[1, 0] == pytest.approx(scores, rel=1e-6)


def test_a_merged_score_is_of_its_open_cells() -> None:
    """Otherwise a word's half-blocked cell with itself could score higher than a cell with more weight."""
    view = replace(VIEW, scaled=np.where(CAUSAL, 50, VIEW.scaled).astype(np.float32))
    found = merged(view, np.array([0, 1, 3]), np.array([0, 1, 3]))
    one, both = view.scaled[1, 1], np.log(np.exp(view.scaled[2, 1:3]).sum())
    assert found.scaled[1, 1] == pytest.approx((one + both) / 2, rel=1e-6)
    assert found.scaled[0, 1] == pytest.approx(50 + np.log(2)), "all are blocked"
    np.testing.assert_allclose(over_queries(view, [1, 2]).scaled[0, 2], view.scaled[2, 2], rtol=1e-6)


def test_a_merged_cell_is_blocked_only_where_all_of_its_cells_are() -> None:
    padding = np.zeros((5, 5), bool)
    padding[:, 4] = True
    view = HeadView(WEIGHTS, WEIGHTS, {"causal": CAUSAL, "padding": padding}, VIEW.queries, VIEW.keys)
    found = merged(view, np.array([0, 2]), np.array([0, 3, 4]))
    assert found.any_blocked().tolist() == [[False, True, True], [False, False, True]]
    assert found.blocked["causal"].tolist() == [[False, True, True], [False, False, True]]
    assert found.blocked["padding"].tolist() == [[False, False, True], [False, False, True]]


@pytest.mark.parametrize("by", BY[1:])
@pytest.mark.parametrize("masks", [{}, {"causal": False}, {"padding": False}, {"sliding": 3}])
def test_merged_rows_sum_to_1_and_blocked_cells_are_exactly_0(story: Model, by: By, masks: dict) -> None:
    run = story.run(story.encode([TEXT, "Hi there."], "left"), story.standard.replace(**masks))
    for row in (0, 1):
        found = merged_head(run, row, run.spec, 4, 1, by)
        sums = found.weights.sum(1)
        np.testing.assert_allclose(sums[~found.empty_rows()], 1, atol=1e-6)
        assert not sums[found.empty_rows()].any()
        assert not found.weights[found.any_blocked()].any()


def test_a_query_that_looks_at_nothing_has_no_part_in_the_mean() -> None:
    weights = np.array([[0, 0], [0.25, 0.75]], np.float32)
    np.testing.assert_array_equal(merged_weights(weights, np.array([0]), np.array([0, 1])), weights[1:])


@pytest.mark.parametrize("by", BY[1:])
def test_thumbnails_are_of_merged_weights_however_they_come_in_blocks(
    story: Model, by: By, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = story.run(story.encode([TEXT, "Hi there."], "left"))
    groups = merge_groups(run, 0, by)
    assert groups is not None
    expected = thumbnails(merged_weights(every_weight(run, 0), *groups))
    plain = survey(run, 0)
    for rows in (1, 3, 7, 50):
        monkeypatch.setattr(trace, "BLOCK_BYTES", rows * 4 * run.num_heads * run.batch.ids.shape[1])
        found = survey(run, 0, by=by)
        np.testing.assert_allclose(found.thumbnails, expected, atol=2e-6)
        np.testing.assert_array_equal(found.future, plain.future)
    blocked = merged_head(run, 0, run.spec, 0, 0, by).any_blocked()
    np.testing.assert_array_equal(found.blocked[0, 0], blocked[: found.blocked.shape[2], : found.blocked.shape[3]])


def test_parts_of_a_merged_view_are_merged() -> None:
    assert cropped(merged(VIEW, np.arange(5), np.array([0, 2])), (1, 3), (0, 1)).merged


@pytest.mark.parametrize(("how", "expected"), [("mean", [0, 0.125, 0.375, 0.5, 0]), ("sum", [0, 0.25, 0.75, 1, 0])])
def test_several_queries_together(how: str, expected: list[float]) -> None:
    found = over_queries(VIEW, [3, 2, 3], how)  # type: ignore[arg-type]
    assert found.weights.tolist() == [expected]
    assert (found.queries, found.first) == (["cd"], 2)
    assert found.any_blocked().tolist() == [[False] * 4 + [True]]


def test_what_is_no_merging_is_refused(story: Model) -> None:
    run = story.run(story.encode(["Once"]), MaskSpec())
    with pytest.raises(ValueError, match="expected one of tokens, words, sentences, got 'lines'"):
        merge_groups(run, 0, "lines")  # type: ignore[arg-type]
    for queries, how in (([], "mean"), ([5], "mean"), ([-1], "sum"), ([0], "largest")):
        with pytest.raises(ValueError, match="expected queries from 0 to 4 and mean or sum"):
            over_queries(VIEW, queries, how)  # type: ignore[arg-type]


def test_no_block_is_held_longer_than_its_group() -> None:
    from model.heads.merging import MergedBlocks

    rows, columns = np.array([0, 2, 5]), np.array([0, 3])
    merge, weights = MergedBlocks((rows, columns), 7), torch.rand(2, 7, 7)
    parts = [merge.add(slice(begin, begin + 1), weights[:, begin : begin + 1]) for begin in range(7)]
    assert [(some.start, some.stop) for some, _ in parts if some.start < some.stop] == [(0, 1), (1, 2), (2, 3)]
    found = torch.cat([part for _, part in parts], 1).numpy()
    np.testing.assert_allclose(found, merged_weights(weights.numpy(), rows, columns), atol=1e-6)


def test_a_long_texts_thumbnails_are_blocked_where_its_sentences_are(story: Model) -> None:
    """The sentences have very different lengths, and some lie outside the window."""
    trace = story.run(story.encode(["A cat, a dog, a bird and a fox ran to the old man. I ran. No. He saw."]))
    spec = MaskSpec(sliding=4)
    whole = survey(trace, 0, spec, "sentences").blocked
    assert whole.any()
    assert not whole.all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "LONG", 7)
        np.testing.assert_array_equal(survey(trace, 0, spec, "sentences").blocked, whole)
