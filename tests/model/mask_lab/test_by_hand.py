"""Tests of the head small enough to calculate on paper: its numbers, and the worksheet that asks for them."""

import io
import math

import numpy as np
import pytest
from pypdf import PdfReader

from model.mask_lab.fills import KEYS, QUERIES, TOKENS, VALUES, by_hand
from viz.html import rounded
from viz.mask_lab.by_hand import stages, stages_html
from viz.mask_lab.worksheet import worksheet

GIVEN = tuple(map(np.array, (QUERIES, KEYS, VALUES)))


def test_every_stage_of_the_third_token_is_what_one_calculates() -> None:
    """q = (1, 1) with the keys (1, 0), (1, 2), (0, 1) gives 1, 3, 1; the fourth key is masked."""
    found = by_hand(*GIVEN, masked=True)
    np.testing.assert_allclose(found.raw[2], [1, 3, 1, 3])
    np.testing.assert_allclose(found.scaled[2], np.array([1, 3, 1, 3]) / math.sqrt(2))
    small, large = math.exp(1 / math.sqrt(2)), math.exp(3 / math.sqrt(2))
    np.testing.assert_allclose(found.exp[2], [small, large, small, 0])
    total = 2 * small + large
    assert found.sums[2] == pytest.approx(total)
    np.testing.assert_allclose(found.weights[2], [small / total, large / total, small / total, 0])
    np.testing.assert_allclose(found.output[2], [(small + 2 * small) / total, (large + 2 * small) / total])


def test_without_the_mask_every_cell_counts() -> None:
    free, masked = (by_hand(*GIVEN, masked=one) for one in (False, True))
    assert free.allowed.all()
    assert (free.exp > 0).all()
    np.testing.assert_allclose(free.weights[3], masked.weights[3])  # the last row sees all keys with the mask too
    assert (free.weights[0] != masked.weights[0]).all()


@pytest.mark.parametrize("wrong", [np.zeros((4, 3)), np.full((4, 2), 9.5), np.full((4, 2), np.nan)])
def test_another_table_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected 4 × 2 keys within ±9"):
        by_hand(GIVEN[0], wrong, GIVEN[2], masked=True)


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.5, "0.5"), (2.126, "2.13"), (-0.25, "−0.25"), (-0.001, "0"), (-1.5, "−1.5")]
)
def test_numbers_are_written_as_by_hand(value: float, text: str) -> None:
    assert rounded(value) == text


@pytest.mark.parametrize("answers", [True, False])
def test_the_worksheet_has_the_answers_of_the_core_only_where_it_is_to(answers: bool) -> None:
    found = by_hand(*GIVEN, masked=True)
    pdf = worksheet(found, GIVEN, TOKENS, title="Compute by hand", task="Fill in.", answers=answers)
    (page,) = PdfReader(io.BytesIO(pdf)).pages
    text = page.extract_text()
    named = {name: cells for name, _, cells in stages(found, TOKENS)}
    assert all(name.split()[0] in text for name in named)
    assert ("−∞" in text) == answers
    for cell in ("8.34", "0.67"):  # e^(3/√2), and its weight
        assert any(cell in row for cells in named.values() for row in cells)
        assert (cell in text) == answers


def test_blocked_cells_are_marked_on_the_page() -> None:
    assert stages_html(by_hand(*GIVEN, masked=True), TOKENS).count('class="blocked"') == 6
    assert stages_html(by_hand(*GIVEN, masked=False), TOKENS).count('class="blocked"') == 0
