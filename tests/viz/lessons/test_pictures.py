"""Tests of a lesson's pictures in HTML and of formulas: what they show, and that nothing typed becomes markup."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from model.heads.vectors import FourTokens, HeadVectors, RunScores, four_token_steps
from viz.lessons import pictures
from viz.lessons.glossary import formula

ROW = FourTokens((2.0, 1.0), ((1, 0), (1, 2), (0, 1), (2, 1)), ((1, 0), (0, 1), (2, 2), (-1, 1)), blocked=(3,))
LABELS = ["<start>", "<b>", "c"]


def strips(html: str) -> list[np.ndarray]:
    """Return images uint8 [n,4]: red, green, blue, opacity."""
    found = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one))))[0] for one in found]


def test_a_vector_is_red_above_0_blue_below_and_clear_at_0() -> None:
    shown = pictures.picture("embedding", np.array([[1.0, -1, 0], [0.5, 0, 0], [0, 0, 0]]), LABELS, 1)
    first, second, third = strips(shown)
    assert first[:, 3].tolist() == [255, 255, 0]
    assert first[0, 0] > first[0, 2]
    assert first[1, 2] > first[1, 0]
    assert 0 < second[0, 3] < 255
    assert not third[:, 3].any()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_the_output_lists_the_keys_that_weigh_and_norms_all_of_them() -> None:
    weights = np.array([[1, 0, 0], [0.25, 0.75, 0], [0, 0, 1]])
    v = np.array([[3.0, 4.0], [0, 1], [5, 12]])
    data = HeadVectors(v, v, v, weights, weights @ v, np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], bool))
    output = pictures.picture("output", data, LABELS, 1)
    assert len(strips(output)) == 3  # two keys and their sum
    assert "75.0%" in output
    norms = pictures.picture("norms", data, LABELS, 1)
    assert re.findall(r'<td class="number">(.*?)</td>', norms)[1::2] == ["5.0", "1.0", "13.0"]
    assert re.findall(r'<td class="number">(.*?)</td>', norms)[::2] == ["25.0%", "75.0%", "blocked"]
    unsplit = pictures.picture("norms", data, LABELS, 2)
    assert re.findall(r'<td class="number">(.*?)</td>', unsplit)[::2] == ["0%", "0%", "100%"], "not blocked, but 0"


@pytest.mark.parametrize(("show", "named"), [("norms", ["k0", "k1", "k2"]), ("output", ["k1", "k2"])])
def test_keys_of_another_text_have_its_names(show: str, named: list[str]) -> None:
    weights, v = np.array([[1.0, 0, 0], [0, 0.25, 0.75]]), np.array([[3.0, 4.0], [0, 1], [5, 12]])
    data = HeadVectors(v[:2], v, v, weights, weights @ v, np.zeros((2, 3), bool))
    html = pictures.picture(show, data, LABELS[:2], 1, ["k0", "k1", "k2"])
    assert re.findall(r'<th class="token">(.*?)</th>', html) == named
    assert "“&lt;b&gt;”" in html
    vectors = pictures.picture("qkv", data, LABELS[:2], 1, ["k0", "k1", "k2"]).split("<b>")[1:]
    rows = [re.findall(r'<th class="(.*?)">(.*?)</th>', one) for one in vectors]
    keys = [("token", key) for key in ("k0", "k1", "k2")]
    assert rows == [[("token", "&lt;start&gt;"), ("query", "&lt;b&gt;")], keys, keys]


def test_a_row_of_four_tokens_is_given_without_what_is_asked() -> None:
    given, whole = pictures.numbers(ROW, None), pictures.numbers(ROW, four_token_steps(ROW))
    assert "q·k" not in given
    assert [cell for cell in ("2.83", "−∞", "0.73", "(0.35, 0.91)") if cell in whole] == [
        "2.83",
        "−∞",
        "0.73",
        "(0.35, 0.91)",
    ]
    assert "NaN" in pictures.numbers(ROW, four_token_steps(FourTokens(ROW.query, ROW.keys, ROW.values, (0, 1, 2, 3))))


@pytest.mark.parametrize("ink", ["", "#123456"])
def test_a_training_s_curves_begin_and_end_where_the_scores_do(ink: str) -> None:
    scores = [RunScores(5.0, 0.1, 0.0), RunScores(4.0, 0.5, 0.25), RunScores(0.0, 1.0, 1.0)]
    html = str(pictures.training([0, 10, 40], scores, 1, ink))
    assert "Step 10: loss 4.00" in html
    assert 'loss: from 5.00 to 0.00"' in html  # in words
    drawn = [base64.b64decode(one).decode() for one in re.findall(r"svg\+xml;base64,([^\"]+)", html)] if ink else [html]
    loss = re.findall(r'points="([^"]+)"', "".join(drawn))[0].split()
    assert [float(point.split(",")[0]) for point in loss] == pytest.approx([36, 36 + 206 / 4, 242])
    assert [float(point.split(",")[1]) for point in loss] == pytest.approx([24, 24 + 146 / 5, 170], abs=0.1)


def test_a_formula_is_mathml_and_no_link() -> None:
    assert "<mfrac>" in formula(r"\frac{q \cdot k}{\sqrt{d}}")
    assert (
        formula(r"\arg\max_x <f>") == r'<div class="formula"><code>\arg\max_x &lt;f&gt;</code></div>'
    )  # KaTeX supports it
    for signs in (r"\begin{aligned} a &= b \\ c &= d \end{aligned}", r"a \& b", r"\textcolor{#228B22}{x}"):
        assert "formula" in formula(signs), "no sign out of place"
    for hurts in ("<script>alert(1)</script>", r"\text{<script>alert(1)</script>}", r"\color{<script>}{x}"):
        assert "<script" not in formula(hurts)
