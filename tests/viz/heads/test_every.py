"""Tests of the bytes of one head's picture, of a difference, and of many heads on one page."""

import numpy as np
import pytest

from model.heads.view import HeadView
from tests.viz.packet import unpacked
from tests.viz.views import causal, padded
from viz.heads.cells import (
    MAX_CELLS,
    changed,
    difference_header,
    difference_packet,
    heads_that_fit,
    picture_packet,
    weight_digits,
    weight_text,
)
from viz.saved.explorer import SHIFT, WEIGHTS, AllHeads, heads_packet


def head(seed: int, blocked: dict[str, np.ndarray], queries: int = 5, keys: int = 7) -> HeadView:
    weights = np.random.default_rng(seed).dirichlet(np.ones(keys) / 4, queries).astype(np.float32)
    for mask in blocked.values():
        weights[mask] = 0
    labels = [f"t{index}" for index in range(11)]
    return HeadView(weights, np.zeros_like(weights), blocked, labels[:queries], labels[:keys])


def test_ten_thousandths_are_the_digits_that_every_view_writes() -> None:
    ties = np.array([0, 1, 0.5, 0.25, 0.03125, 2**-14, 0.00005, 0.00015, 0.99995, 1.0000001, 1e-30], np.float32)
    some = np.concatenate([ties, np.random.default_rng(1).random(5000, np.float32) ** 4])
    for weight, found in zip(some.tolist(), weight_digits(some).tolist(), strict=True):
        assert weight_text(weight) == f"{found / 10_000:.4f}"
    np.testing.assert_array_equal(weight_digits(-some), -weight_digits(some))


def test_many_heads_are_read_back() -> None:
    first, second = {"causal": causal(5)}, {"causal": causal(5), "padding": padded(5, 2)}
    heads = {(1, 0): head(1, first, 5, 5), (0, 2): head(2, second, 5, 5), (1, 1): head(3, first, 5, 5)}
    thumbnails, none = np.zeros((2, 3, 1, 1), np.float32), np.zeros((2, 1, 1, 1), bool)
    packet = heads_packet(AllHeads(thumbnails, none, heads, [(1, 0)], 3), WEIGHTS, "{}")
    header, body = unpacked(packet)
    assert [(*one["head"], one["plane"]) for one in header["held"]] == [
        (1, 0, 0),
        (0, 2, 1),
        (1, 1, 0),
    ]  # two of them share a plane
    assert [reason["words"] for reason in header["reasons"]] == ["blocked by causal", "blocked by padding",
                                                                  "blocked by causal and padding"]  # fmt: skip
    assert header["query"] == 3
    planes, blocked = body[: 6 * 25].reshape(6, 5, 5), body[6 * 25 :].view("<u2").reshape(2, 5, 5)
    numbers = planes[:3].astype(int) * 256 + planes[3:6] - SHIFT
    for found, view in zip(numbers, heads.values(), strict=True):
        np.testing.assert_array_equal(found, weight_digits(view.weights))
    np.testing.assert_array_equal(blocked[0] > 0, causal(5))
    np.testing.assert_array_equal(blocked[1] > 0, causal(5) | padded(5, 2))


def test_one_picture_holds_exact_weights() -> None:
    view = head(4, {"causal": np.triu(np.ones((5, 7), bool), 3)})
    header, body = unpacked(picture_packet(view, name="L3 H1", query=4))
    assert (header["name"], header["query"], header["what"]) == ("L3 H1", 4, "weight")
    np.testing.assert_array_equal(np.frombuffer(body[: 4 * 35].tobytes(), "<f4").reshape(5, 7), view.weights)
    assert [len(palette) for palette in header["palettes"]] == [255 * 6, 255 * 6]
    assert header["most"] >= view.weights.max()


def test_a_difference_blocks_what_both_block() -> None:
    now, other = head(1, {"padding": padded(5, 2)}, 5, 5), head(2, {"causal": causal(5)}, 5, 5)
    change = changed(now, other)
    np.testing.assert_array_equal(change.weights, now.weights - other.weights)
    np.testing.assert_array_equal(change.any_blocked(), causal(5) & padded(5, 2))
    assert set(change.blocked) == {"padding", "causal"}
    header, _ = unpacked(difference_packet(change, name="one", query=0))
    assert header["what"] == "change"
    assert header["most"] == pytest.approx(np.abs(change.weights).max())
    assert difference_header(0)["palettes"][0] != difference_header(0)["palettes"][1]  # 0 has the page's background
    with pytest.raises(ValueError, match=r"expected two heads over the same tokens, got 5 × 5 .* and 5 × 7"):
        changed(now, head(2, {}))


def test_there_is_room_for_so_many() -> None:
    small, large = (HeadView(np.zeros(shape), np.zeros(shape), {}, [], []) for shape in ((128, 128), (2048, 2048)))
    assert heads_that_fit(small) == 144
    assert heads_that_fit(large) == 1
    assert heads_that_fit(small, 3 * 128 * 128 - 1) == 2
    assert MAX_CELLS * 2 * 4 / 3 < 6.4e6  # bytes of base64, whatever the weights are
