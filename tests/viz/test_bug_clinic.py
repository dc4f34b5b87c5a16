"""The table of laws: what it says of a finding, in which order, and that no text gets out of its cell.

python -m pytest tests/viz/test_bug_clinic.py
"""

import math
import re

import pytest

from viz.bug_clinic import Finding, LawRow, amount_text, law_table
from viz.numbers import number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7.968, "7.97"),
        (0.125, "0.125"),
        (0.0006, "0.0006"),
        (4110, "4,110"),
        (1.4e-6, "1·10⁻⁶"),
        (3e-12, "3·10⁻¹²"),
        (math.inf, "NaN"),
        (math.nan, "NaN"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding(0.31, True, "weight"), "broken: 0.31"),
        (Finding(2e-7, False, "weight"), "held: 2·10⁻⁷"),
        (Finding(math.nan, False, "weight"), "–"),
        (Finding(math.inf, True, "output"), "broken: NaN"),
        (Finding(math.inf, True, "output", refused=True), "broken: not computed"),
    ],
)
def test_findings(finding: Finding, text: str) -> None:
    assert amount_text(finding) == text


def test_the_telling_law_comes_first_then_the_broken_ones() -> None:
    held, broken, silent = (Finding(amount, amount == 1, "weight") for amount in (0.0, 1.0, math.nan))
    rows = [
        LawRow("held <b>", held, held, "", telling=False),
        LawRow("broken", broken, held, "", telling=False),
        LawRow("silent", silent, silent, 'a "quote"', telling=False),
        LawRow("telling", broken, held, "", telling=True),
    ]
    table = law_table(rows)
    assert re.findall(r'(?:600|normal)">(.*?) <span', table) == ["telling", "broken", "held &lt;b&gt;", "silent"]
    assert table.count("<b>broken: 1</b>") == 2
    assert table.count('title="needs a &quot;quote&quot;"') == 2
