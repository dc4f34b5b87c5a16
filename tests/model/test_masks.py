"""Tests of the masks, how they combine, and which of them a MaskSpec turns on.

True means "may attend"; rows are queries, columns are keys. Every mask, alone or with others, is compared with its
definition cell by cell, and those that transformers has with transformers'.
"""

import dataclasses
import random

import pytest
import torch
from torch import Tensor
from transformers import MistralConfig, masking_utils

from model import masks
from model.mask_kinds import KINDS
from model.masks import MaskSpec
from model.spec import OFF
from tests.model.random_specs import built, random_spec

KEEP = torch.tensor([[True, True, True, True, True], [False, False, True, True, True]])
NO_PADDING = torch.ones(3, 5, dtype=torch.bool)


def rows(*lines: str) -> Tensor:
    """Return a mask drawn by hand: x = may attend."""
    return torch.tensor([[cell == "x" for cell in line] for line in lines])


FULL, LEFT, RIGHT = rows("xxxxxxx"), rows("..xxxxx"), rows("xxxxx..")  # keep, of 7 positions
PACKED = torch.tensor([[0, 0, 0, 1, 1, 2, 2]])  # the document of each position


def drawn_by(
    spec: MaskSpec,
    keep: Tensor = FULL,
    queries: int = 7,
    *,
    sizes: dict[str, int] | None = None,
    documents: Tensor = PACKED,
) -> Tensor:
    """Return all masks of spec together, bool [Q,K], for the one row of keep."""
    made = built(spec, keep, queries, sizes, lambda _: documents)
    everything = masks.combine(made | {"nothing": torch.ones(1, dtype=torch.bool)})
    return everything.expand(1, 1, queries, keep.shape[1])[0, 0]


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Assert that two masks [Q,K] are equal; the message draws both, with x for an allowed cell."""
    pictures = (
        "\n".join("".join(".x"[int(cell)] for cell in line) for line in one.tolist()) for one in (found, expected)
    )
    assert torch.equal(found, expected), "found\n{}\nexpected\n{}".format(*pictures)


def test_causal_with_more_keys_than_queries_takes_the_last_positions() -> None:
    assert torch.equal(masks.causal(2, 5), rows("xxxx.", "xxxxx"))


def test_the_names_are_the_switches() -> None:
    names = {field.name for field in dataclasses.fields(MaskSpec)}
    assert names == {*masks.MASK_NAMES, "layers", "heads", "positions"}
    blocking = {name for name in masks.NATIVE if not KINDS[name].opens}
    assert set(built(MaskSpec(), KEEP, 5, sizes={"window": 2, "chunk": 3})) == blocking


def test_a_mask_that_blocks_nothing_is_left_out() -> None:
    assert set(built(MaskSpec(), NO_PADDING, 5)) == {"causal"}
    assert set(built(MaskSpec(), NO_PADDING, 5, sizes={"window": 5})) == {"causal"}
    assert set(built(MaskSpec(), NO_PADDING, 5, sizes={"window": 4})) == {"causal", "window"}
    assert built(MaskSpec(causal=False), NO_PADDING, 5) == {}


class TestLeftOut:
    """Masks that block nothing are left out, on 7 positions."""

    def test_nothing_is_blocked_when_all_is_off(self) -> None:
        assert drawn_by(OFF, LEFT).all()
        assert built(dataclasses.replace(OFF, stride=1), LEFT, 7) == {}

    def test_a_window_as_long_as_the_text_is_left_out(self) -> None:
        assert set(built(MaskSpec(sliding=7), FULL, 7)) == {"causal"}
        assert set(built(MaskSpec(sliding=6), FULL, 7)) == {"causal", "sliding"}

    def test_documents_without_a_text_are_one(self) -> None:
        assert set(built(MaskSpec(documents="."), FULL, 7)) == {"causal"}


def may_attend(spec: MaskSpec, keep: list[bool], document: list[int], window: int | None, q: int, k: int) -> bool:
    """Whether q may attend to k by the definition of every mask: if any mask blocks it, it is blocked unless sinks or a
    prefix open it; what is drawn overrides everything."""
    index = [sum(keep[:position]) for position in range(len(keep))]
    real = keep[q] and keep[k]
    for stroke in reversed(spec.drawn):
        inside = stroke.query <= index[q] <= stroke.last_query and stroke.key <= index[k] <= stroke.last_key
        if real and inside and stroke.kind == "erase":
            break
        if real and inside:
            return stroke.kind == "open"
    if real and index[k] < spec.sinks:
        return True
    if real and max(index[q], index[k]) < spec.prefix:
        return True
    return (
        (k <= q or not spec.causal)
        and (keep[k] or not spec.padding)
        and (keep[q] or not spec.padding or not spec.padding_queries)
        and (abs(q - k) < (window or 99) or not spec.window)
        and (abs(q - k) < spec.sliding or not spec.sliding)
        and ((q - k) % spec.stride == 0 if spec.stride else True)
        and (document[q] == document[k] or not spec.documents)
    )


@pytest.mark.parametrize("seed", range(5))
def test_any_masks_together_are_their_definitions_cell_by_cell(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        spec, queries, window = random_spec(chance), chance.choice([11, 11, 5]), chance.choice([None, 3])
        keep = [[chance.random() < 0.8 for _ in range(11)], [False] * 4 + [True] * 7, [True] * 5 + [False] * 6]
        document = [sorted(chance.randrange(3) for _ in range(11)) for _ in keep]
        made = built(
            spec,
            torch.tensor(keep),
            queries,
            sizes={"window": window} if window else {},
            split=lambda _, document=document: torch.tensor(document),
        )
        found = masks.combine(made)
        found = torch.ones(3, 1, queries, 11) > 0 if found is None else found.expand(3, 1, queries, 11)
        expected = [
            [[may_attend(spec, keep[row], document[row], window, q, k) for k in range(11)] for q in range(11)]
            for row in range(3)
        ]
        for row in range(3):
            assert_same(found[row, 0], torch.tensor(expected[row])[-queries:])


class TestAgainstTransformers:
    """Masks of the same kinds built by transformers (transformers.masking_utils)."""

    CONFIG = MistralConfig(sliding_window=2, attn_implementation="sdpa")
    KEEPS = torch.cat([FULL, LEFT, RIGHT])
    RESTARTED = torch.tensor([[0, 1, 2, 0, 1, 0, 1]])  # the positions of PACKED

    @staticmethod
    def cells(function: object, batch: int = 1, queries: int = 7) -> Tensor:
        """Return the mask, [B,1,Q,K], that a mask function of transformers gives."""
        found = masking_utils.sdpa_mask(
            batch, queries, 7, q_offset=7 - queries, mask_function=function, allow_is_causal_skip=False
        )
        assert found is not None
        return found

    @pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
    @pytest.mark.parametrize("queries", [7, 3])
    def test_a_causal_window(self, size: int, queries: int) -> None:
        theirs = self.cells(masking_utils.sliding_window_causal_mask_function(size), queries=queries)
        assert_same(drawn_by(MaskSpec(sliding=size), queries=queries), theirs[0, 0])
        assert_same(drawn_by(MaskSpec(), queries=queries, sizes={"window": size}), theirs[0, 0])

    @pytest.mark.parametrize("reach", [1, 2, 5])
    def test_a_window_in_both_directions(self, reach: int) -> None:
        theirs = self.cells(masking_utils.sliding_window_bidirectional_mask_function(reach))
        assert_same(drawn_by(dataclasses.replace(OFF, sliding=reach + 1)), theirs[0, 0])

    def test_causal_and_a_window_with_padding(self) -> None:
        given = {"inputs_embeds": torch.zeros(3, 7, 5), "attention_mask": self.KEEPS.long(), "past_key_values": None}
        for row in range(3):
            keep = self.KEEPS[row : row + 1]
            whole = masking_utils.create_causal_mask(self.CONFIG, **given)[row, 0]
            near = masking_utils.create_sliding_window_causal_mask(self.CONFIG, **given)[row, 0]
            assert_same(drawn_by(MaskSpec(), keep), whole)
            assert_same(drawn_by(MaskSpec(sliding=2), keep), near)
            assert_same(drawn_by(MaskSpec(), keep, sizes={"window": 2}), near)

    def test_a_prefix_is_one_block_that_sees_itself(self) -> None:
        blocks = masking_utils.blockwise_overlay(torch.tensor([[0, 0, 0, -1, -1, -1, -1]]))
        theirs = self.cells(masking_utils.or_masks(masking_utils.causal_mask_function, blocks))
        assert_same(drawn_by(MaskSpec(prefix=3)), theirs[0, 0])

    def test_packed_documents(self) -> None:
        packed = self.cells(masking_utils.packed_sequence_mask_function(PACKED))
        assert_same(drawn_by(dataclasses.replace(OFF, documents=".")), packed[0, 0])

    def test_packed_documents_with_positions_that_start_again(self) -> None:
        given = {"inputs_embeds": torch.zeros(1, 7, 5), "attention_mask": None, "past_key_values": None}
        given["position_ids"] = self.RESTARTED
        whole = masking_utils.create_causal_mask(self.CONFIG, **given)
        near = masking_utils.create_sliding_window_causal_mask(self.CONFIG, **given)
        assert_same(drawn_by(MaskSpec(documents=".")), whole[0, 0])
        assert_same(drawn_by(MaskSpec(documents=".", sliding=2)), near[0, 0])
