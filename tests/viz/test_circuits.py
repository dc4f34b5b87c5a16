"""Tests of patches and circuits as pictures, tables and sentences."""

from dataclasses import replace

import numpy as np

from model.circuits.ov_qk import TokenEffects
from tests.viz.markup import plain
from viz.circuits import (
    ARCS,
    PatchView,
    arcs_figure,
    arcs_words,
    circuit_table,
    composition_numbers,
    composition_sentence,
    patch_figure,
    patch_grid,
    patch_sentence,
    patch_table,
    profile_sentence,
    strongest,
)
from viz.palette import NOW

VALUES = np.array([[0.1, -2.0, 0.0], [3.0, 0.25, -0.125]], np.float32)
VIEW = PatchView(VALUES, ["L0", "L3"], ["H0", "H1", "5: <b>"], "logits", (2.0, -2.0), ("A", "B"))


def test_the_strongest_patch_is_named_with_its_share_of_the_way() -> None:
    assert patch_sentence(VIEW) == (
        "Measured in A: 2.00, in B: −2.00. L3 H0 from A changes B most: by +3.00, 75% of the way to A."
    )
    even = replace(VIEW, measured=(1.0, 2.0), names=("B", "A"))  # too small a difference for shares of it
    assert patch_sentence(even).endswith("L3 H0 from B changes A most: by +3.00.")
    assert "%" not in plain(patch_table(even))
    back = replace(VIEW, measured=(-2.0, 2.0))
    assert patch_sentence(back).endswith("L3 H0 from A changes B most: by +3.00, away from A.")
    assert patch_sentence(replace(VIEW, values=VALUES / 1000)).endswith("No patch changes it by 0.005 or more.")


def test_the_table_has_the_strongest_first_and_the_spread() -> None:
    words = plain(patch_table(replace(VIEW, spread=np.abs(VALUES) / 2)))
    assert words.index("L3 H0") < words.index("L0 H1") < words.index("L3 H1") < words.index("L0 H0")
    assert "1.500" in words
    assert "−50%" in words
    assert "&lt;b&gt;" in patch_grid(VIEW)


def test_the_heatmap_sends_places_and_frames_what_is_chosen() -> None:
    plain_figure = patch_figure(replace(VIEW, chosen=frozenset({(1, 2)})), dark=False).to_dict()
    trace = plain_figure["data"][0]
    assert trace["customdata"][1][2] == [1, 2]
    assert trace["text"][1][2] == "L3 5: &lt;b&gt;"
    assert trace["zmax"] == 3
    assert plain_figure["layout"]["shapes"][0]["x0"] == 1.5


def test_tokens_of_a_circuit_are_escaped() -> None:
    row = TokenEffects("<s>", 1.0, (("·a", 2.5),), (("·b", -1.25),))
    words = circuit_table([row], "token", "raises", "lowers")
    assert "&lt;s&gt;" in words
    assert "·a +2.5" in words
    assert "·b −1.2" in words


def test_small_effects_are_not_all_zero() -> None:
    row = TokenEffects("a", 1.0, (("b", 0.0374),), (("c", -0.0021),))
    words = circuit_table([row], "token", "raises", "lowers")
    assert "b +0.037" in words
    assert "c −0.002" in words
    assert "b 0.0" in circuit_table([replace(row, largest=(("b", 0.0),), smallest=())], "token", "raises", "lowers")


def test_composition_as_arcs_and_in_words() -> None:
    found = np.full((3, 2, 3, 2), np.nan)
    found[1, :, 0], found[2, :, :2] = -0.1, 0.01
    found[2, 1, 0, 0] = 0.4
    assert strongest(found)[0] == (2, 1, 0, 0)
    assert len(strongest(found)) == 8
    assert [strongest(found, most) for most in (1, 3, 9)] == [strongest(found)[:most] for most in (1, 3, 9)]  # ties too
    names = [0, 1, 5]
    drawn = arcs_figure(found, names, (2, 1)).to_dict()
    shapes = drawn["layout"]["shapes"]
    assert len(shapes) == min(8, ARCS)
    assert shapes[-1]["path"].startswith("M 0,0 Q")
    assert shapes[-1]["path"].endswith("2,1")
    assert drawn["data"][0]["text"][5] == "L5 H1"
    (numbers,) = composition_numbers(found, names)
    assert numbers.table.shape == (8, 3)
    assert numbers.table.iloc[0].tolist() == ["L5 H1", "L0 H0", "0.4"]
    expected = "Strongest K-composition: L5 H1 reads the output of L0 H0, 0.400 above random matrices."
    assert composition_sentence(found, "k", names) == expected
    nothing = composition_sentence(np.full((2, 1, 2, 1), -0.2), "q", names)
    assert nothing == "No head reads an earlier one by more than random matrices would."
    alone = composition_sentence(np.full((1, 2, 1, 2), np.nan), "q", [0])
    assert alone == "It has one layer: no head comes before another."
    assert composition_numbers(np.full((1, 2, 1, 2), np.nan), [0])[0].table.empty


def test_the_chosen_head_has_its_own_strongest_arcs() -> None:
    found = np.zeros((2, ARCS + 2, 2, ARCS + 2))
    found[1, :, 0, 0] = 1
    found[1, 3, 0, 1] = 0.5
    found[1, :, 0, 2] = 0.25  # as many as are drawn of any other head
    shapes = lambda chosen: arcs_figure(found, [0, 1], chosen).to_dict()["layout"]["shapes"]  # noqa: E731
    red = lambda chosen: [one["path"] for one in shapes(chosen) if one["line"]["color"] == NOW]  # noqa: E731
    assert [len(shapes(chosen)) for chosen in ((0, 0), (0, 1), (0, 2), (0, 3))] == [ARCS, ARCS + 1, 2 * ARCS, ARCS]
    assert [len(red(chosen)) for chosen in ((0, 0), (0, 1), (0, 2), (0, 3))] == [ARCS, 1, ARCS, 0]
    assert arcs_words(found) == (
        f"Arcs: the {ARCS} strongest of {2 * ARCS + 5} pairs above random matrices, and at most {ARCS} of the "
        "chosen head."
    )
    assert arcs_words(found[:, :2, :, :2]) == ""


def test_a_profile_without_a_preference_is_said_to_have_none() -> None:
    assert profile_sentence(np.array([0.1, 0.2])) == "Position alone changes its scores by less than 0.5."
    assert profile_sentence(np.array([0.1, 2.25, 0])) == "Position alone favours keys at distance 1: +2.25."
