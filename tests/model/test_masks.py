"""The masks, how they combine, and what a MaskSpec turns on.

    python -m pytest tests/model/test_masks.py

True means "may attend"; rows are queries, columns are keys.
"""

import dataclasses
from itertools import product

import pytest
import torch
from torch import Tensor

from model import masks
from model.masks import MaskSpec

KEEP = torch.tensor([[True, True, True, True, True], [False, False, True, True, True]])
NO_PADDING = torch.ones(3, 5, dtype=torch.bool)


def rows(*lines: str) -> Tensor:
    """A mask drawn by hand: x = may attend."""
    return torch.tensor([[cell == "x" for cell in line] for line in lines])


def test_causal_sees_itself_and_what_came_before() -> None:
    assert torch.equal(masks.causal(3, 3), rows("x..", "xx.", "xxx"))


def test_causal_with_more_keys_than_queries_takes_the_last_positions() -> None:
    assert torch.equal(masks.causal(2, 5), rows("xxxx.", "xxxxx"))


def test_window_sees_both_ways_less_than_its_size() -> None:
    assert torch.equal(masks.window(5, 5, 2), rows("xx...", "xxx..", ".xxx.", "..xxx", "...xx"))
    assert torch.equal(masks.window(2, 5, 3), rows(".xxxx", "..xxx"))
    assert torch.equal(masks.window(3, 3, 1), torch.eye(3, dtype=torch.bool))


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 position, got 0"):
        masks.window(5, 5, 0)


def test_padding_hides_keys_from_every_query_of_its_row() -> None:
    assert masks.padding(KEEP).shape == (2, 1, 1, 5)
    drawn = masks.padding(KEEP).expand(2, 1, 3, 5)[:, 0]
    assert torch.equal(drawn[0], rows("xxxxx", "xxxxx", "xxxxx"))
    assert torch.equal(drawn[1], rows("..xxx", "..xxx", "..xxx"))


def test_the_names_are_the_switches() -> None:
    names = {field.name for field in dataclasses.fields(MaskSpec)}
    assert names == {*masks.MASK_NAMES, "layers", "heads", "positions"}
    assert set(masks.build(MaskSpec(), KEEP, 5, window_size=2)) == set(masks.NATIVE)


@pytest.mark.parametrize(("causal", "padding", "window"), list(product([True, False], repeat=3)))
def test_build_turns_on_what_the_spec_says_and_combine_asks_all_of_them(
    causal: bool, padding: bool, window: bool
) -> None:
    spec = MaskSpec(causal=causal, padding=padding, window=window)
    built = masks.build(spec, KEEP, 5, window_size=3)
    assert set(built) == {name for name in masks.NATIVE if getattr(spec, name)}
    combined = masks.combine(built)
    if not built:
        assert combined is None
        return
    assert combined is not None
    for row, query, key in product(range(2), range(5), range(5)):
        expected = (
            (key <= query or not causal)
            and (bool(KEEP[row, key]) or not padding)
            and (abs(query - key) < 3 or not window)
        )
        assert bool(combined.expand(2, 1, 5, 5)[row, 0, query, key]) == expected, (row, query, key)


def test_a_mask_that_blocks_nothing_is_left_out() -> None:
    assert set(masks.build(MaskSpec(), NO_PADDING, 5)) == {"causal"}
    assert set(masks.build(MaskSpec(), NO_PADDING, 5, window_size=5)) == {"causal"}
    assert set(masks.build(MaskSpec(), NO_PADDING, 5, window_size=4)) == {"causal", "window"}
    assert masks.build(MaskSpec(causal=False), NO_PADDING, 5) == {}


def test_masks_of_the_last_queries_are_the_last_rows() -> None:
    whole = masks.combine(masks.build(MaskSpec(), KEEP, 5, window_size=3))
    last = masks.combine(masks.build(MaskSpec(), KEEP, 2, window_size=3))
    assert whole is not None
    assert last is not None
    assert torch.equal(last, whole[:, :, 3:])


def test_a_spec_is_plain_data_that_cannot_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        MaskSpec().causal = False  # type: ignore[misc]
    assert hash(MaskSpec(causal=False)) == hash(dataclasses.replace(MaskSpec(), causal=False))
