"""Tests of tokens and cells as bytes: the packet, what is shown of a long text, and one rule for numbers.

The packet is read as viz/components/cells.js reads it.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viz
from model.heads.view import cropped
from tests.viz.packet import unpacked
from tests.viz.views import causal, padded, view_of
from viz.components import source
from viz.heads.cells import weight_text, window
from viz.heads.tokens import FAINT, MAX_TOKENS, colour_scale_sentence, left_out, tokens_packet, tokens_part


def read(packet: bytes, heads: int = 1) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return the header, weights float32 [n,Q,K] and reasons uint16 [n,Q,K]."""
    header, body = unpacked(packet)
    shape = (heads, len(header["queries"]), len(header["keys"]))
    cells = int(np.prod(shape))
    assert len(body) == 6 * cells
    return header, body[: 4 * cells].view("<f4").reshape(shape), body[4 * cells :].view("<u2").reshape(shape)


def packet_of(view: Any, **given: Any) -> bytes:
    return tokens_packet(view, **({"name": "L1 H2", "query": 3, "among": (0, len(view.queries))} | given))


class TestPacket:
    def test_weights_are_the_head_s_own_bit_for_bit(self) -> None:
        view = view_of((7, 7), causal=causal(7))
        _, weights, _ = read(packet_of(view))
        np.testing.assert_array_equal(weights[0], view.weights)

    def test_every_blocked_cell_and_no_other_names_all_its_masks(self) -> None:
        view = view_of((7, 7), causal=causal(7), padding=padded(7, 2))
        header, _, reasons = read(packet_of(view))
        np.testing.assert_array_equal(reasons[0] > 0, view.any_blocked())
        words = np.array(["", *(one["words"] for one in header["reasons"])])[reasons[0]]
        assert words[0, 1] == "blocked by causal and padding"
        assert words[0, 5] == "blocked by causal"
        assert words[5, 0] == "blocked by padding"
        both = next(one for one in header["reasons"] if one["words"].endswith("and padding"))
        assert [hatch["name"] for hatch in both["hatch"]] == ["causal", "padding"]

    def test_no_cell_is_blocked_where_no_mask_is_on(self) -> None:
        header, _, reasons = read(packet_of(view_of((5, 5))))
        assert header["reasons"] == []
        assert not reasons.any()

    def test_its_header_says_where_the_reader_is(self) -> None:
        view = cropped(view_of((11, 11), causal=causal(11)), (4, 9), (4, 9))
        header, _, _ = read(packet_of(view, query=6, pins=[5, 2], towards="by", among=(2, 11)))
        wanted = {"first": 4, "firstKey": 4, "query": 6, "pins": [5, 2], "towards": "by", "among": [2, 11]}
        assert (wanted | {"across": False}).items() <= header.items()
        assert (header["queries"], header["keys"]) == (view.queries, view.keys)

    def test_it_stays_small_on_the_longest_part_that_is_shown(self) -> None:
        view = view_of((MAX_TOKENS, MAX_TOKENS))
        assert len(packet_of(view)) <= 100_000


class TestLongTexts:
    @pytest.mark.parametrize(
        ("centre", "expected"), [(0, (2, 9)), (5, (2, 9)), (6, (3, 10)), (20, (17, 24)), (29, (22, 29)), (31, (22, 29))]
    )
    def test_a_window_lies_around_its_centre_and_inside(self, centre: int, expected: tuple[int, int]) -> None:
        assert window(2, 29, centre, 7) == expected

    def test_what_fits_is_whole_and_nothing_is_said(self) -> None:
        view = view_of((MAX_TOKENS, MAX_TOKENS), causal=causal(MAX_TOKENS))
        part = tokens_part(view, (0, MAX_TOKENS), 5)
        assert part.weights.shape == view.weights.shape
        assert left_out(view, part, 5) == ""

    def test_what_does_not_is_shown_around_the_query_and_the_sentence_counts_what_lies_outside(self) -> None:
        size = MAX_TOKENS + 61
        view = view_of((size, size))
        part = tokens_part(view, (0, size), 100)
        first = 100 - MAX_TOKENS // 2
        assert (part.first, part.first_key, part.weights.shape) == (first, first, (MAX_TOKENS, MAX_TOKENS))
        np.testing.assert_array_equal(part.weights, view.weights[first:, first:][:MAX_TOKENS, :MAX_TOKENS])
        outside = view.weights[100, :first].sum() + view.weights[100, first + MAX_TOKENS :].sum()
        words = left_out(view, part, 100)
        assert f"{first}–{first + MAX_TOKENS - 1} of {size}" in words
        assert f"{outside * 100:.1f}" in words
        assert "of the query's weight" in words

    @pytest.mark.parametrize("total", [0.1, 1.0, 3.0], ids=["a sink has the rest", "one query", "a sum of three"])
    def test_the_share_outside_is_of_what_the_keys_get(self, total: float) -> None:
        view = view_of((9, 9))
        view.weights[8] = np.array([1, 1, 2, 0, 0, 0, 0, 1, 3], np.float32) / 8 * total
        assert left_out(view, cropped(view, (7, 9), (7, 9)), 8).endswith("50.0% of the query's weight lies outside.")
        view.weights[8] = 0
        assert left_out(view, cropped(view, (7, 9), (7, 9)), 8).endswith(" 0% of the query's weight lies outside.")

    def test_a_part_without_the_query_says_so(self) -> None:
        view = view_of((29, 29), causal=causal(29))
        part = tokens_part(view, (3, 11), 25)
        assert (part.first, part.weights.shape) == (3, (8, 8))
        assert left_out(view, part, 25) == "Tokens 3–10 of 29 are shown; the query, 25, is not among them."


class TestFaintWeights:
    """Tests of small weights: in a text of 1,000 tokens, a head that spreads its attention gives each a thousandth."""

    def test_the_largest_is_lit_as_1_is_and_that_is_said(self) -> None:
        view = view_of((7, 7), causal=causal(7))
        faint = replace(view, weights=view.weights * np.float32(0.0032) / view.weights.max())
        header, weights, _ = read(packet_of(faint))
        assert header["brightest"] == weights.max() == np.float32(0.0032)
        assert (
            colour_scale_sentence(faint)
            == "Colours are scaled: the largest weight shown, 0.0032, looks like a weight of 1."
        )

    @pytest.mark.parametrize("largest", [0.0, FAINT, 0.4, 1.0])
    def test_else_1_is_the_brightest_and_nothing_is_said(self, largest: float) -> None:
        view = view_of((3, 3))
        some = replace(view, weights=view.weights * np.float32(largest) / view.weights.max())
        header, _, _ = read(packet_of(some))
        assert (header["brightest"], colour_scale_sentence(some)) == (1, "")


class TestNumbers:
    @pytest.mark.parametrize(
        ("weight", "text"),
        [(0.70631, "0.7063"), (1.0, "1.0000"), (0.0, "0.0000"), (0.03125, "0.0313"), (0.00004, "0.0000")],
    )
    def test_four_digits_and_a_tie_goes_up_as_in_a_browser(self, weight: float, text: str) -> None:
        assert weight_text(weight) == text

    def test_a_float32_is_written_as_it_is_and_not_as_what_it_was_made_from(self) -> None:
        assert weight_text(np.float32(0.00005)) == "0.0000"  # 4.9999998e-05
        assert weight_text(0.00005) == "0.0001"

    def test_nobody_writes_four_digits_of_a_weight_by_another_rule(self) -> None:
        """Python rounds a tie to even: 1/32, in a row that is uniform over 32 keys."""
        assert (weight_text(1 / 32), f"{1 / 32:.4f}") == ("0.0313", "0.0312")
        root = Path(viz.__file__).parents[1]
        scripts = [script for layer in ("viz", "ui", "unmask", "pages") for script in (root / layer).rglob("*.py")]
        found = re.findall(
            r".*weight[\w.()\[\], =]*:\.4f.*", "\n".join(script.read_text("utf-8") for script in scripts)
        )
        assert found == []


class TestComponent:
    def test_no_text_from_outside_becomes_markup(self) -> None:
        assert "innerHTML" not in source("cells.js", "tokens.js")
