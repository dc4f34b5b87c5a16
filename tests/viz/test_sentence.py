"""Tests of the one sentence: each case states what is on the screen, and its share is the one that was measured."""

import math
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from model.atlas.result import MIN_QUERIES
from tests.viz.views import view_of
from viz.numbers import LeakShares, percent
from viz.sentence import HeadScene, comparable, sentence, weights_sentence

STANDARD = HeadScene(
    name="L3 H2", across=False, can_be_causal=True, causal=True, padding=True, lifted=(), idle=(),
    standard_causal=True, layer_only=False, only_attention=True, has_padding=True, padded_text="", chat=False,
    pad_side="left", leak=LeakShares(0.0, 0.0),
    previous=0.1, itself=0.1, first=0.1, induction=0.1, repeats=20, tokens=9, spread=5.7,
)  # fmt: skip


def shares_in(words: str) -> list[str]:
    return re.findall(r"[<>]?\d+(?:\.\d+)?%", words)


class TestStandardMasks:
    @pytest.mark.parametrize(
        ("pattern", "words"),
        [
            ("induction", "induction head"),
            ("previous", "just before"),
            ("first", "first token"),
            ("itself", "token itself"),
        ],
    )
    @pytest.mark.parametrize("share", [0.5, 0.613, 0.873])
    def test_the_strongest_pattern_is_named_with_its_share(self, pattern: str, words: str, share: float) -> None:
        found = sentence(replace(STANDARD, **{pattern: share}))
        assert words in found
        assert shares_in(found) == [percent(share)]
        assert "L3 H2" in found

    def test_of_two_patterns_the_rarer(self) -> None:
        assert "induction head" in sentence(replace(STANDARD, previous=0.6, induction=0.5, first=0.55))
        assert "just before" in sentence(replace(STANDARD, previous=0.3, induction=0.2, first=0.7))

    def test_an_induction_head_is_one_from_a_score_of_a_half(self) -> None:
        found = sentence(replace(STANDARD, induction=0.499))
        assert found.startswith("Induction: where a token occurred before, 49.9%")
        assert "induction head" not in found
        assert "induction head" in sentence(replace(STANDARD, induction=0.5))

    def test_an_induction_head_needs_as_many_queries_as_in_the_atlas(self) -> None:
        found = sentence(replace(STANDARD, induction=0.9, repeats=MIN_QUERIES - 1))
        assert "induction head" not in found
        assert f"three or more tokens earlier: {MIN_QUERIES - 1})" in found

    def test_one_token_has_only_itself_to_look_at(self) -> None:
        unmeasured = dict.fromkeys(("previous", "itself", "first", "induction", "spread"), math.nan)
        alone = replace(STANDARD, tokens=1, repeats=0, **unmeasured)
        assert "can attend only to itself" in sentence(alone)
        lifted = sentence(replace(alone, causal=False))
        assert "one token, and no later one" in lifted
        assert not shares_in(lifted)

    def test_a_head_stays_on_itself_from_a_half(self) -> None:
        assert "stays" not in sentence(replace(STANDARD, itself=0.49))

    def test_a_head_without_a_pattern_is_said_to_have_none(self) -> None:
        found = sentence(replace(STANDARD, previous=0.2, induction=math.nan, first=0.24))
        assert "as widely as 5.7 equal weights" in found
        assert not shares_in(found)
        assert "attends to anything" in sentence(replace(STANDARD, first=math.nan, spread=math.nan))

    @pytest.mark.parametrize(
        "unmeasured", [("induction",), ("previous", "induction"), ("previous", "induction", "first")]
    )
    def test_what_was_not_measured_is_never_named(self, unmeasured: tuple[str, ...]) -> None:
        found = sentence(replace(STANDARD, **{"first": 0.9} | dict.fromkeys(unmeasured, math.nan)))
        assert "nan" not in found
        assert ("first token" in found) == ("first" not in unmeasured)


class TestLiftedMasks:
    @pytest.mark.parametrize("across", [True, False])
    def test_but_not_where_there_is_no_causal_mask(self, across: bool) -> None:
        scene = replace(STANDARD, across=across, can_be_causal=False, padding=False, pad_side="right")
        found = sentence(replace(scene, leak=LeakShares(0.0, 0.3)))
        assert "already hides" not in found
        assert shares_in(found) == ["30.0%"]

    def test_a_causal_mask_on_a_model_that_never_had_one(self) -> None:
        found = sentence(replace(STANDARD, standard_causal=False))
        assert "never had" in found

    @pytest.mark.parametrize("across", [True, False])
    def test_where_no_causal_mask_can_be_the_switch_is_said_to_do_nothing(self, across: bool) -> None:
        found = sentence(replace(STANDARD, causal=False, across=across, can_be_causal=False, leak=LeakShares(0.4, 0)))
        assert "does not apply to this attention" in found
        assert not shares_in(found)

    def test_messages_are_one_row_so_no_other_line_is_advised(self) -> None:
        scene = replace(STANDARD, padding=False, has_padding=False)
        assert "add a second line" in sentence(scene)
        assert "add a second line" not in sentence(replace(scene, chat=True))

    @pytest.mark.parametrize(("padded", "own"), [("source", "target"), ("target", "source")])
    def test_padding_of_the_other_text_is_told(self, padded: str, own: str) -> None:
        scene = replace(STANDARD, padding=False, padded_text=padded, leak=LeakShares(0.0, 0.3))
        assert shares_in(sentence(scene)) == ["30.0%"]
        text = sentence(replace(scene, has_padding=False))
        assert f"The {own} has no padding; the {padded} has some" in text
        assert "second line" not in text
        hidden = sentence(replace(scene, has_padding=False, pad_side="right"))
        assert ("real tokens are not affected" in hidden) == (padded == "target"), "the causal mask blocks it"

    def test_a_window_that_is_off(self) -> None:
        assert "window" in sentence(replace(STANDARD, lifted=("window",)))
        assert "chunk" in sentence(replace(STANDARD, lifted=("chunk",)))
        assert "any distance" not in sentence(replace(STANDARD, idle=("window",)))
        assert "changes no cell of L3 H2" in sentence(replace(STANDARD, idle=("window",)))
        assert "chunk" not in sentence(STANDARD)
        assert "window" not in sentence(STANDARD)


def test_every_scene_has_a_whole_sentence() -> None:
    switches = ["across", "can_be_causal", "causal", "padding", "standard_causal", "layer_only", "has_padding"]
    for values in product([True, False], repeat=len(switches)):
        for side in ("left", "right"):
            scene = replace(STANDARD, **dict(zip(switches, values, strict=True)), pad_side=side)
            for lifted in ((), ("window",)):
                found = sentence(replace(scene, lifted=lifted, idle=lifted and ("chunk",)))
                assert re.fullmatch(r"[A-Z].{20,}[.]", found), found


def test_right_padding_reaches_real_tokens_through_another_attention() -> None:
    scene = replace(STANDARD, padding=False, pad_side="right", leak=LeakShares(0.0, 0.3))
    assert "are not affected" in sentence(scene)
    assert "are not affected" not in sentence(replace(scene, only_attention=False))
    assert "are not affected" in sentence(replace(scene, only_attention=False, layer_only=True))


def test_heads_of_other_lengths_are_not_subtracted() -> None:
    one, other = view_of((3, 3)), view_of((2, 2))
    assert not comparable(one, other)
    assert "different lengths (3 × 3 and 2 × 2 cells)" in weights_sentence(one, other)


def test_padding_is_neither_counted_nor_named_where_a_real_query_differs() -> None:
    one, other = view_of((3, 3)), view_of((3, 3))
    one = replace(one, weights=np.array([[0, 0, 0], [0, 1, 0], [0, 0.25, 0.75]], np.float32))
    other = replace(other, weights=np.array([[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5]], np.float32))
    assert "1.000 in B" in weights_sentence(one, other)
    text = weights_sentence(one, other, (False, True, True))
    assert text.startswith("Apart from padding, A and B differ most where")
    assert "0.250 in A, 0.500 in B" in text
    assert text.endswith("the same position in both: 1 of 2.")
    other = replace(other, weights=np.array([[1, 0, 0], *one.weights[1:]], np.float32))
    text = weights_sentence(one, other, (False, True, True))
    assert text.startswith("A and B differ most where")
    assert "0.000 in A, 1.000 in B" in text


@pytest.mark.parametrize("rounding", [0.0, 2e-7, -2e-7])
def test_of_two_cells_that_change_alike_the_first_is_named(rounding: float) -> None:
    """Both cells of a row with two keys do, except for rounding, which differs between machines."""
    one, other = view_of((2, 2)), view_of((2, 2))
    one = replace(one, weights=np.array([[1, 0], [0.994, 0.006]], np.float32))
    other = replace(other, weights=np.array([[1, 0], [0.974, 0.026 + rounding]], np.float32))
    assert "0.994 in A, 0.974 in B" in weights_sentence(one, other)
