"""Tests of the Padding page's grid, tables and words: their content, and that no text becomes HTML."""

import math
import re
from dataclasses import replace

import pytest

from viz.html import amount
from viz.numbers import Candidate
from viz.padding import words
from viz.padding.tables import PaddedText, Way, alt, grid, texts_table, ways_style

EVIL = "<script>alert(1)</script>"
NAN = math.nan
LONG = PaddedText(
    1, False, ("the", EVIL, "sat"), (True, True, True), (0, 1, 2), (0.0, 1e-6, 0.0),
    Candidate("on", 0.5), Candidate("on", 0.5), Candidate("on", 0.5),
)  # fmt: skip
SHORT = PaddedText(
    2, True, ("<pad>", "<pad>", "cat"), (False, False, True), (0, 1, 2), (NAN, NAN, 3.14159),
    Candidate("·x", 0.25), Candidate(EVIL, 0.75), Candidate("·y", 0.1),
)  # fmt: skip
TEXTS = [LONG, SHORT]
APART = {  # by side, positions and mask, as for a causal model with learned positions
    ("right", "cells"): (1e-6, 1e-6, 1e-6), ("right", "counted"): (1e-6, 1e-6, 1e-6),
    ("left", "cells"): (20.0, 8.0, 8.0), ("left", "counted"): (15.0, 2e-6, 2e-6),
}  # fmt: skip


def all_ways(by_way: dict[tuple[str, str], tuple[float, float, float]] = APART) -> list[Way]:
    return [
        Way(side, mask, positions, difference, 1 if difference > 1e-3 else 0, difference <= 1e-3)
        for (side, positions), differences in by_way.items()
        for mask, difference in zip(("off", "keys", "both"), differences, strict=True)
    ]


def one(ways: list[Way], side: str, mask: str, positions: str) -> Way:
    (found,) = [way for way in ways if (way.side, way.mask, way.positions) == (side, mask, positions)]
    return found


def cells(html: str) -> list[tuple[str, str]]:
    """Return (class, content) of every cell."""
    return re.findall(r'<td class="(.*?)".*?>(.*?)</td>', html)


class TestGrid:
    def test_every_cell_has_its_token_its_position_and_its_difference(self) -> None:
        found = [re.sub("<.*?>", " ", content).split() for _, content in cells(grid(TEXTS, "keys", 1e-3))]
        shown = "&lt;script&gt;alert(1)&lt;/script&gt;"
        assert found[:3] == [["the", "0", "="], [shown, "1", "="], ["sat", "2", "="]]
        assert found[3:] == [["&lt;pad&gt;", "0"], ["&lt;pad&gt;", "1"], ["cat", "2", "3.1"]]

    @pytest.mark.parametrize("mask", ["off", "keys", "both"])
    def test_padding_is_marked_by_what_its_mask_does(self, mask: str) -> None:
        html = grid(TEXTS, mask, 1e-3)
        assert [kind for kind, _ in cells(html)] == ["same", "same", "same read"] + 2 * [f"pad {mask}"] + ["apart read"]
        assert f'class="padded swatch {mask}"' in html

    def test_no_token_becomes_html(self) -> None:
        for html in (grid(TEXTS, "off", 1e-3), texts_table(TEXTS, 1e-3), alt(TEXTS, "off", 1e-3)):
            assert "<script>" not in html

    def test_a_model_with_positions_of_its_own_shows_none(self) -> None:
        html = grid([replace(text, positions=()) for text in TEXTS], "keys", 1e-3)
        assert "position id" not in html
        assert 'class="p"' not in html

    def test_nothing_is_underlined_where_no_token_is_predicted(self) -> None:
        texts = [replace(text, alone=None, padded=None, at_end=None) for text in TEXTS]
        assert "read" not in {word for kind, _ in cells(grid(texts, "keys", 1e-3)) for word in kind.split()}

    def test_a_difference_that_is_no_number_is_shown(self) -> None:
        text = replace(SHORT, differences=(NAN, NAN, math.inf))
        assert cells(grid([LONG, text], "off", 1e-3))[-1][1].endswith("∞</span>")

    def test_it_says_what_it_shows_to_whoever_cannot_see_it(self) -> None:
        html = grid(TEXTS, "keys", 1e-3)
        (label,) = re.findall(r'aria-label="(.*?)"', html)
        assert "2 sentences by 3 cells" in label
        assert "2 of sentence 2" in label
        assert "sentence 2 by up to 3.1" in label


@pytest.mark.parametrize(
    ("difference", "shown"),
    [(0, "0"), (8.0568, "8.1"), (21.3, "21"), (0.9999, "1.0"), (0.012, "0.012"), (9.97, "10"), (1234.5, "1,234"),
     (1.073e-5, "1.1 × 10⁻⁵"), (0.0012, "1.2 × 10⁻³"), (math.inf, "∞"), (NAN, "∞")],
)  # fmt: skip
def test_amounts(difference: float, shown: str) -> None:
    assert amount(difference).replace("\u202f", " ") == shown


class TestTables:
    def test_position_minus_1_has_a_column_where_it_may_be_padding(self) -> None:
        text = replace(SHORT, keep=(True, False, False), differences=(3.0, NAN, NAN))
        html = texts_table([LONG, text], 1e-3)
        assert "read at position −1" in html
        assert "·y" in html
        assert "read at position −1" not in texts_table(TEXTS, 1e-3)

    def test_every_way_has_a_colour_of_its_verdict(self) -> None:
        ways = all_ways()
        style = ways_style(ways)
        found = dict(re.findall(r"\.st-key-(way_\w+) button:is\(\*, :hover\) { background: (#\w+)", style))
        assert list(found) == [way.key for way in ways]
        assert len({(found[way.key], way.correct) for way in ways}) == 2


class TestWords:
    def test_a_wrong_way_says_how_wrong_whose_and_what_would_mend_it(self) -> None:
        ways = all_ways()
        shown = one(ways, "left", "keys", "cells")
        text = words.sentence(TEXTS, shown, "logits") + words.advice(ways, shown, 3)
        assert "Left padding, padding mask on keys, position ids 0…2: wrong" in text
        assert "Sentence 2's logits differ by up to 3.1" in text
        assert "instead of <b>“·x”</b> (25.0%)" in text
        assert f"Correct would be: position ids from the mask. The largest difference is then {amount(2e-6)}" in text
        assert "<script>" not in text

    def test_no_way_at_all(self) -> None:
        ways = [replace(way, correct=False) for way in all_ways()]
        assert "No padding setting is correct" in words.advice(ways, ways[0], 3)

    def test_rounding_that_tips_a_tie_is_not_called_the_same_token(self) -> None:
        way = replace(one(all_ways(), "right", "keys", "cells"), others=1)
        assert "stays the same" not in words.sentence(TEXTS, way, "logits")

    def test_nothing_padded(self) -> None:
        assert "nothing is padded" in words.sentence([LONG], all_ways()[0], "logits")

    def test_a_model_with_positions_of_its_own(self) -> None:
        own = [replace(way, positions="own") for way in all_ways() if way.positions == "counted"]
        assert "computes them itself" in dict(words.reasons(own, causal=False, cells=3, tolerance=1e-3))["Position ids"]
        assert "0…" not in words.advice(own, own[0], 3)

    def test_a_difference_is_said_with_the_position_ids_that_it_holds_for(self) -> None:
        why = dict(words.reasons(all_ways(), causal=True, cells=3, tolerance=1e-3))
        assert "With ids from the mask, the largest difference is 15 without a padding mask and" in why["Left padding"]
        ids = "With left padding and a padding mask, the largest difference is 8.0 with ids 0…2 and"
        assert ids in why["Position ids"]
        own = [replace(way, positions="own") for way in all_ways() if way.positions == "counted"]
        why = dict(words.reasons(own, causal=True, cells=3, tolerance=1e-3))
        assert not any("ids from the mask" in text for text in why.values())

    def test_a_window_of_the_model_is_named_where_padding_comes_within_it(self) -> None:
        for causal, sides in ((True, {"Left padding"}), (False, {"Left padding", "Right padding"})):
            why = dict(words.reasons(all_ways(), causal=causal, cells=3, tolerance=1e-3, local=True))
            assert {title for title, text in why.items() if "only within these" in text} == sides

    def test_masked_queries_are_said_to_change_nothing_only_where_they_do(self) -> None:
        """A convolution beside the attention, as in ConvBERT, reads padding whatever the masks are."""
        differ = APART | {("right", "counted"): (14.0, 8.0, 8.73)}
        for by_way, alike in ((APART, True), (differ, False)):
            text = dict(words.reasons(all_ways(by_way), causal=False, cells=3, tolerance=1e-3))["Masking queries too"]
            assert ("nothing that padding attends to reaches a sentence" in text) == alike
            assert text.endswith("columns are equal." if alike else "differ by at most 0.73.")

    def test_position_minus_1(self) -> None:
        text = replace(SHORT, keep=(True, False, False), differences=(3.0, NAN, NAN))
        assert "it predicts “·y” for sentence 2" in words.reading([LONG, text], "right")
        assert "position ids: 1 of 2." in words.reading(TEXTS, "left")
        alike = replace(SHORT, padded=SHORT.alone)
        assert words.reading([LONG, alike], "left").endswith("padded on the left for generation.")
