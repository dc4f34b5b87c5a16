"""Tests of ablation in words, as a picture and as a table: nothing is claimed that a number does not show."""

import math
import re

import numpy as np
import plotly.graph_objects as go
import pytest

from viz.ablation import EffectsView, PredictionTarget, effects_figure, effects_table, ranking_sentence, sentence

ASKED = PredictionTarget("<cat>", "the", 4, True)
EFFECTS = np.array([[0.5, -0.75, 0.01], [0.0, 0.25, 0.04]], np.float32)
VIEW = EffectsView(EFFECTS, [0, 3], frozenset({(1, 2)}))


@pytest.mark.parametrize(
    ("names", "before", "after", "text"),
    [
        (["L4 H0"], math.log(0.8), math.log(0.4),
     "L4 H0 off (zero) changes the loss of {} by +0.69 nats, and its probability from 80.0% to 40.0%."),
        (["L4 H0"], math.log(0.4), math.log(0.8),
     "L4 H0 off (zero) changes the loss of {} by −0.69 nats, and its probability from 40.0% to 80.0%."),
        (["L0 H0"] * 12, -1.0, -2.0,
     "12 heads off (zero) changes the loss of {} by +1.00 nats, and its probability from 36.8% to 13.5%."),
        (["L0 H1", "L2 H3"], -1.0, -2.0,
     "L0 H1 and L2 H3 off (zero) changes the loss of {} by +1.00 nats, and its probability from 36.8% to 13.5%."),
        (["L0 H1", "L1 H1", "L2 H3"], -1.0, -1.0,
     "L0 H1, L1 H1 and L2 H3 off (zero) changes the loss of {} by 0.00 nats, and its probability from 36.8% to 36.8%."),
        (["L4 H0"], math.log(0.0009), math.log(0.0012),
     "L4 H0 off (zero) changes the loss of {} by −0.29 nats, and its probability from 0.09% to 0.12%."),
        (["L4 H0"], math.log(0.00001), math.log(0.00002),
     "L4 H0 off (zero) changes the loss of {} by −0.69 nats, and its probability from 0.001% to 0.002%."),
        (["L4 H0"], math.log(0.3681), math.log(0.3682),
     "L4 H0 off (zero) changes the loss of {} by 0.00 nats, and its probability from 36.8% to 36.8%."),
    ],
)  # fmt: skip
def test_the_sentence(names: list[str], before: float, after: float, text: str) -> None:
    about = "“&lt;cat&gt;” after “the” (4)"
    assert sentence(names, "zero", ASKED, before, after) == f"Turning {text.format(about)}"


def test_no_head_off_claims_nothing() -> None:
    assert sentence([], "zero", ASKED, -1.0, -1.0).startswith("No head is off.")


def test_the_ranking_names_the_largest_either_way() -> None:
    assert ranking_sentence(VIEW) == (
        "Turned off one at a time: 6 of 6 heads. L0 H1 matters most: it changes the loss by −0.75 nats. "
        "Heads that change it by less than 0.05: 3."
    )
    part = EffectsView(np.array([[0.5, 0.06, 0.07], [np.nan] * 3], np.float32), [0, 3], frozenset())
    assert ranking_sentence(part).startswith("Turned off one at a time: 3 of 6 heads. L0 H0 matters most: ")
    small = EffectsView(np.full((1, 3), 0.004, np.float32), [0], frozenset())
    assert (
        ranking_sentence(small)
        == "Turned off one at a time: 3 of 3 heads. None changes the loss by 0.005 nats or more."
    )
    assert ranking_sentence(EffectsView(np.full((1, 3), np.nan, np.float32), [0], frozenset())) == ""


def test_the_table_has_the_largest_rise_first() -> None:
    found = re.findall(r"<td>(L\d H\d)</td><td class=\"number\">([+−]?[\d.]+)</td>", effects_table(VIEW))
    assert found == [
        ("L0 H0", "+0.500"), ("L3 H1", "+0.250"), ("L3 H2", "+0.040"), ("L0 H2", "+0.010"),
        ("L3 H0", "0.000"), ("L0 H1", "−0.750"),
    ]  # fmt: skip


def test_the_picture_has_every_effect_and_frames_what_is_off() -> None:
    figure = effects_figure(VIEW, dark=False)
    go.Figure(figure.to_dict())  # validated by plotly
    np.testing.assert_allclose(np.array(figure.data[0].z), EFFECTS)
    assert figure.data[0].zmax == -figure.data[0].zmin == pytest.approx(0.75)
    assert figure.data[0].text[1][2] == "L3 H2"
    (frame,) = figure.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (1.5, 2.5, 0.5, 1.5)
    stops = [at for at, _ in figure.data[0].colorscale]
    assert stops == [0, 0.375, 0.5, 0.625, 1]
