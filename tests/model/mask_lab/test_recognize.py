"""Tests that masks of other programs are recognized and run unchanged, and that what is wrong with some is stated.

python -m pytest tests/model/mask_lab/test_recognize.py
"""

import io
from typing import Any

import numpy as np
import pytest
import torch
from transformers import masking_utils

import unmask
from model.mask_lab.recognize import name_mask
from model.masks import MaskContext, MaskSpec

T = 13
Q, K = np.indices((T, T))
CAUSAL = K <= Q
WINDOW = CAUSAL & (Q - K < 4)
PART = np.repeat([0, 1, 2], [5, 3, 5])
SHARED = CAUSAL & ((Q < 6) == (K < 6))
TEXT = "Once upon a time there was a cat, a dog and"


def theirs(function: Any) -> np.ndarray:
    """Return a mask function of transformers as bool [T,T]."""
    return np.array([[bool(function(0, 0, torch.tensor(q), torch.tensor(k))) for k in range(T)] for q in range(T)])


RIGHT = {
    "transformers' causal": (theirs(masking_utils.causal_mask_function), {"causal": True}),
    "transformers' window": (
        theirs(masking_utils.and_masks(masking_utils.sliding_window_overlay(4), masking_utils.causal_mask_function)),
        {"causal": True, "sliding": 4},
    ),
    "an encoder's": (np.ones((T, T), int), {"causal": False}),
    "Longformer's window": (np.abs(Q - K) < 3, {"causal": False, "sliding": 3}),
    "T5's prefix": (CAUSAL | ((Q < 5) & (K < 5)), {"causal": True, "prefix": 5}),
    "StreamingLLM's, one sink": (WINDOW | (K < 1), {"causal": True, "sliding": 4, "sinks": 1}),
    "a dilated window": (CAUSAL & (Q - K < 7) & ((Q - K) % 2 == 0), {"causal": True, "sliding": 7, "stride": 2}),
    "block diffusion": (Q // 4 >= K // 4, {"causal": False, "block_causal": 4}),
    "each token alone": (np.eye(T), {"causal": False, "sliding": 1}),
    "BERT's, added": (np.where(CAUSAL, 0, -10_000), {"causal": True}),
    "minimum of float16": (np.where(WINDOW, 0, np.finfo(np.float16).min), {"causal": True, "sliding": 4}),
}
IN_PARTS = {
    "packed": (CAUSAL & (PART[:, None] == PART), "documents of 5, 3, 5 tokens"),
    "Llama 4's chunks": (CAUSAL & (Q // 4 == K // 4), "documents of 4, 4, 4, 1 tokens"),
    "packed, with four sinks": (
        SHARED | (K < 4),
        "documents of 6, 7 tokens and the first 4 keys visible in all documents",
    ),
    "packed, with a prompt": (
        CAUSAL & (SHARED | (K < 4)),
        "documents of 6, 7 tokens and the first 4 keys visible in all documents",
    ),
    "packed, with a sink": (SHARED | (K < 1), "It is: causal mask, documents of 6, 7 tokens and the first key visible"),
    "a window, packed, with a sink": (
        WINDOW & SHARED | (K < 1),
        "window of 4, sinks of 1, documents of 6, 7 tokens and the first key visible in all documents",
    ),
    "four sinks": (CAUSAL & ((Q - K < 3) | (K < 4)), "sinks of 4 and opened cells within the causal mask"),
}
WRONG = {
    "inverted": (~WINDOW, "inverted", {"causal": True, "sliding": 4}),
    "1 = blocked": (np.triu(np.ones((T, T)), 1), "inverted", {"causal": True}),
    "transposed": (WINDOW.T, "transposed", {"causal": True, "sliding": 4}),
    "itself left out": (K < Q, "row of the token before it", {"causal": True}),
    "one too many": (K <= Q + 1, "row of the token after it", {"causal": True}),
    "a hole": (CAUSAL & ~((Q == 7) & (K == 3)), r"1 cell \(query, key\) differs: \(7, 3\)", {"causal": True}),
    "a leak": (WINDOW | ((Q == 2) & (K == 11)), r"1 cell .* \(2, 11\)", {"causal": True, "sliding": 4}),
    "an empty row": (CAUSAL & (Q != 6), "Query 6 has no allowed key", {"causal": True}),
    "transposed, with a hole": (CAUSAL.T & ~((Q == 3) & (K == 9)), "transposed", {"causal": True}),
    "packed, transposed": ((CAUSAL & (PART[:, None] == PART)).T, r"transposed.*documents of 5, 3, 5", {"causal": True}),
    "packed, inverted": (PART[:, None] != PART, r"inverted.*documents of 5, 3, 5", {}),
    "padded, inverted": (~(WINDOW & (K >= 3)), r"inverted.*3 keys of padding", {"causal": True, "sliding": 4}),
    "three holes in no mask": (~np.isin(Q * T + K, [20, 50, 90]), r"blocks nothing. 3 cells .* \(1, 7\)", {}),
    "nothing allowed": (np.zeros((T, T), bool), "blocks every cell", {}),
}


def runs_as(masks: dict[str, Any]) -> np.ndarray:
    """Return the mask, bool [T,T], of a run of the story model on T tokens."""
    run = unmask.load("story").run(TEXT, masks=masks)
    assert len(run.labels) == T
    return run.mask(1, 2).numpy()


@pytest.mark.parametrize("name", RIGHT)
def test_a_known_mask_is_named_and_runs(name: str) -> None:
    mask, masks = RIGHT[name]
    found = unmask.name_mask(mask)
    assert found.masks == masks
    assert not len(found.differs)
    np.testing.assert_array_equal(runs_as(found.masks), found.allowed)


@pytest.mark.parametrize("name", IN_PARTS)
def test_what_no_kind_gives_runs_as_strokes(name: str) -> None:
    mask, words = IN_PARTS[name]
    found = name_mask(mask)
    assert words in found.sentence
    assert not len(found.differs)
    np.testing.assert_array_equal(runs_as(found.masks), mask)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mask_is_explained_and_runs(name: str) -> None:
    mask, words, meant = WRONG[name]
    found = name_mask(mask)
    assert found.kinds == {kind: value for kind, value in meant.items() if value}
    np.testing.assert_array_equal(runs_as(found.masks), found.allowed)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.sentence)


def test_two_of_three_calls_with_a_cache() -> None:
    late = np.tril(np.ones((4, 11), bool), 7)
    assert name_mask(late).masks == {"causal": True}
    assert name_mask(late & ~np.tril(late, 4)).masks == {"causal": True, "sliding": 3}
    early = name_mask(np.tril(np.ones((4, 11), bool)))
    assert early.masks is None
    assert "aligned at the top left. With 4 queries and 11 keys, the first query is at position 7" in early.sentence


@pytest.mark.parametrize("tokens", [5, 6, 7, 8, 11])
def test_one_diagonal_too_many_is_the_causal_mask_off_by_one(tokens: int) -> None:
    text = name_mask(np.tril(np.ones((tokens, tokens), bool), 1)).sentence
    assert "each token has the row of the token after it. It seems meant as: causal mask" in text


@pytest.mark.parametrize("side", [1, -1])
def test_a_padding_mask_of_a_batch(side: int) -> None:
    lengths = np.array([3, 7, 5])
    found = name_mask((np.arange(7) < lengths[:, None])[:, ::side])
    assert "padding mask of a batch" in found.sentence
    assert found.masks is None
    assert "aligned at the top left" in name_mask(np.tril(np.ones((3, 7), bool))).sentence


def test_padding_at_either_end() -> None:
    for real, block in ((K >= 3, ["block", 0, 0, T - 1, 2]), (K < T - 3, ["block", 0, T - 3, T - 1, T - 1])):
        mask = np.where(real, WINDOW, False)
        found = name_mask(mask)
        assert found.masks == {"causal": True, "sliding": 4, "drawn": [block]}
        np.testing.assert_array_equal(runs_as(found.masks), mask)
        assert "3 keys of padding" in found.sentence
        assert "3 keys of padding" in repr(found)
        assert "array" not in repr(found)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("mask", [CAUSAL, WINDOW])
def test_however_it_is_written(mask: np.ndarray) -> None:
    added = torch.where(torch.from_numpy(mask), 0.0, -torch.inf)
    torch.set_printoptions(profile="full")
    rows = "\n".join(" ".join(str(int(cell)) for cell in row) for row in mask)
    half = torch.zeros(T, T).masked_fill(~torch.from_numpy(mask), torch.finfo(torch.float16).min).half()
    floats, turned = npy(half.numpy()[None, None]), npy(np.asfortranarray(mask.astype(">i4")))
    cuda = str(half[None])[:-1] + ", device='cuda:0', dtype=torch.float16, grad_fn=<MulBackward0>)"
    jax = f"Array({mask.tolist()}, dtype=bool)"
    tensorflow = f"<tf.Tensor: shape=(13, 13), dtype=bool, numpy=\n{mask!r}>"
    written = [
        mask.tolist(), mask.astype(int), torch.from_numpy(mask)[None, None], added, added.bfloat16(), str(added),
        str(torch.from_numpy(mask)), repr(mask), str(mask.astype(int)), rows, npy(mask), cuda, jax, tensorflow,
        floats, turned, rows.replace(" ", ""), rows.replace(" ", ","),
        str(mask.tolist()).lower(), np.where(mask, 0, -1e9).tolist(), str(added.tolist()).replace("-inf", "−∞"),
    ]  # fmt: skip
    torch.set_printoptions(profile="default")
    for given in written:
        np.testing.assert_array_equal(name_mask(given).allowed, mask)


def test_other_masks_of_a_batch_are_mentioned() -> None:
    found = name_mask(np.stack([WINDOW, CAUSAL])[:, None])
    assert found.sentence.startswith("The masks of this batch differ; this is the first.")
    assert found.masks == {"causal": True, "sliding": 4}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (str(torch.ones(2000, 2000)), "set_printoptions"),
        (np.full((3, 3), 0.25), "expected 0 and 1, True and False, or 0 and −∞, got 0.25"),
        (np.array([[0, np.nan]]), "got nan"),
        (np.ones(3), "2 to 4 dimensions, got 1"),
        (np.ones((5, 3)), "got 5 queries and 3 keys"),
        (np.ones((1025, 1025)), "at most 1,024 queries and keys, got 1025 × 1025"),
        ("1 " * 2**21 + "1", "a printed tensor of at most 1,048,576 cells"),
        ("1" * (2**21 + 1), "a printed tensor of at most 1,048,576 cells"),
        ("[" + " " * 2**24, "at most 16,777,216 characters"),
        ("[1]" + " " * 1_000_000 + "\n" * 1_000_000, "2 to 4 dimensions, got 1"),
        ("Size([" * 200_000, "every bracket closed"),
        ("[[1, 0], [1]]", "rows of equal length"),
        ("1 0\n1", "rows of equal length"),
        ("1 1 0", "2 to 4 dimensions, got 1"),
        ("", "cells in it, got none"),
        (np.where(CAUSAL, 1, -np.inf), "got -inf, 1"),
        (np.ones((2, 2), complex), "got complex128"),
        ("[" * 100_000 + "]", "every bracket closed"),
        ("words", "cells in it"),
        ([[1, 0], [1]], "rows of equal length"),
        (b"\x93NUMPY nonsense", "expected an NPY file, got one that cannot be read: save it again"),
        (npy(np.ones((9, 9), bool))[:-5], "expected an NPY file, got one that cannot be read: save it again"),
        (b"", "expected an NPY file, got an empty one"),
        (npy(np.array([None])), "got one of Python objects, which are pickled and never opened"),
        (npy(np.zeros((2, 2), complex)), "expected an array of numbers or booleans, got complex128"),
        (None, "expected an array"),
    ],
)
def test_what_it_refuses(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        name_mask(given)


def test_kinds_of_this_program_at_random() -> None:
    """Each mask made of a few kinds is recognized as kinds that give the same mask."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        masks: dict[str, Any] = {"causal": bool(rng.random() < 0.5)}
        for name in ("sliding", "stride", "block_causal", "prefix", "sinks"):
            if rng.random() < 0.4:
                masks[name] = int(rng.integers(2, 7))
        mask = runs_as(masks)
        found = name_mask(mask)
        np.testing.assert_array_equal(runs_as(found.masks), mask)


def test_of_what_is_made_of_kinds_no_cell_is_said_to_differ() -> None:
    rng = np.random.default_rng(5)
    most = {"sliding": 12, "stride": 4, "block_causal": 7, "prefix_lm": 9, "prefix": 9, "sinks": 5}
    for _ in range(200):
        length = int(rng.choice([8, 11, 16, 24, 37, 64]))
        sizes = {name: int(rng.integers(2, most[name])) for name in most if rng.random() < 0.33}
        spec = MaskSpec(causal=bool(rng.random() < 0.5), padding=False, **sizes)
        mask = MaskContext(torch.ones(1, length, dtype=torch.bool), length, 1).allowed_in_row(spec, 0).numpy()
        found = name_mask(mask)
        assert not len(found.differs), (length, spec, found.sentence)
        assert "nearest" not in found.sentence
