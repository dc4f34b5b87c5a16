"""Tests that faulty held-out modules are found by the check that names the mistake, and that correct ones obey.

python -m tests.mask_check.test_held_out        the table of docs/mask-check.md
"""

import re
from collections import defaultdict

import pytest
import torch
from torch import nn

from mask_check.check import check
from mask_check.findings import BROKEN
from tests.mask_check import held_out, held_out_more
from tests.mask_check.held_out import HeldOut

pytestmark = pytest.mark.slow  # checks seventy modules

FAULTY = [*held_out.HELD_OUT, *held_out_more.HELD_OUT]
CORRECT = [*held_out.CORRECT, *held_out_more.CORRECT]


def broken_by(one: HeldOut) -> set[str]:
    return {finding.law for finding in check(one.make(one.fault), **one.options or {}).broken}


@pytest.mark.parametrize("one", FAULTY, ids=lambda one: f"{one.make.__name__}-{one.fault}")
def test_each_is_found_by_its_check_and_by_what_follows_from_the_mistake(one: HeldOut) -> None:
    found = broken_by(one)
    assert one.law in found
    assert found <= {one.law, *one.also}


@pytest.mark.parametrize("seed", [2, 8])  # with their weights, top k leaves out one distance in three rows
@pytest.mark.parametrize(("fault", "make"), CORRECT, ids=lambda one: getattr(one, "__name__", str(one)))
def test_the_correct_ones_obey(fault: str, make: type[nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    report = check(make(fault))  # type: ignore[call-arg]
    assert report.obeys, [finding.words for finding in report.findings if finding.verdict == BROKEN]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("diagonal", r"off by one, the mask's diagonal .* \(diagonal=1\), or a convolution"),
        ("norm over time", "no causal mask .* or an operation over the whole row, such as a mean, a norm"),
        ("wide", "the window is one token too wide"),
        ("top left", "aligned top-left"),
        ("triangle", "cross-attention is given a causal mask"),
        ("cut to the target", "the source is cut short"),
        ("tiles", "within blocks of 32 tokens"),
    ],
)
def test_likely_causes(fault: str, words: str) -> None:
    one = next(one for one in FAULTY if one.fault == fault)
    assert re.search(words, check(one.make(fault)).finding(one.law).words)


def test_no_cause_is_named_that_is_none() -> None:
    """Keys in the wrong order, restarted positions and empty cache slots are not a mask aligned top-left."""
    for fault in ("newest first", "restart", "empty slots"):
        one = next(one for one in FAULTY if one.fault == fault)
        assert "Likely cause" not in check(one.make(fault)).finding("cache").words


def main() -> None:
    print("| check | faulty modules | found |\n|---|---|---|")
    faults, found = defaultdict(list), defaultdict(int)
    for one in FAULTY:
        faults[one.law].append(one.fault)
        found[one.law] += one.law in broken_by(one)
    for law, names in faults.items():
        print(f"| `{law}` | {', '.join(names)} | {found[law]} of {len(names)} |")
    alarms = sum(not check(make(fault)).obeys for fault, make in CORRECT)  # type: ignore[call-arg]
    print(f"\n{sum(found.values())} of {len(FAULTY)} found; {alarms} alarms on {len(CORRECT)} correct ones")


if __name__ == "__main__":
    main()
