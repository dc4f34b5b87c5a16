"""Tests of a report as text, as JSON and as JUnit XML."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from torch import Tensor, nn

from mask_check import findings
from mask_check.check import check, explain
from mask_check.findings import DOES_NOT_APPLY, LAWS, CheckReport, MeasuredMask
from mask_check.longer import quick_check
from mask_check.sample_networks import SmallDecoder
from mask_check.samples import SAMPLES


@pytest.fixture(scope="module")
def sound() -> CheckReport:
    return check(SmallDecoder(), name="a & b")


@pytest.fixture(scope="module")
def broken() -> CheckReport:
    return check(SAMPLES["future"].make(), name="\x00 <c>")


def test_text(sound: CheckReport, broken: CheckReport) -> None:
    lines = findings.as_text(sound).splitlines()
    assert lines[0] == "a & b: decoder, float32, kernel eager, 0.0195 M parameters"
    after = lines[lines.index("Not checked, and why:") :]
    assert any("Source encoder" in line and "no encoder besides its decoder" in line for line in after)
    assert any("rows of more than 87 tokens" in line for line in after)
    assert lines[-1].startswith(findings.VERDICTS[0].format(lengths="24 and 87") + " ")
    assert sum(line.startswith("obeys") for line in lines) == 21
    lines = findings.as_text(broken).splitlines()
    assert "BROKEN       Influence between tokens" in lines[3]
    assert lines[3].endswith("(0, 1)")
    assert lines[-1].startswith("It does not obey its mask on the rows checked, of 24 tokens. ")


@pytest.mark.parametrize(
    ("key", "words"),
    [("unused", "Broken: Unused parameters."), ("pads", "It does not obey"), ("training", "Broken: Training mode.")],
)
def test_the_verdict_is_about_the_mask_only_where_a_check_of_the_mask_is_broken(key: str, words: str) -> None:
    report = check(SAMPLES[key].make())
    assert report.exit_code == 1
    assert words in findings.verdict_of(report)
    assert ("in eval mode it obeys its mask" in findings.verdict_of(report)) == words.startswith("Broken: ")
    assert set(LAWS) > findings.OTHERS


def test_a_verdict_that_cannot_be_told_names_what_else_is_broken() -> None:
    class NoAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head, self.unused = nn.Embedding(11, 6), nn.Linear(6, 11), nn.Linear(6, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embedding(ids))  # type: ignore[no-any-return]

    said = findings.verdict_of(check(NoAttention()))
    assert "do not show whether it obeys its mask. Broken: Unused parameters." in said


def test_nothing_is_said_of_what_was_not_checked_where_that_is_nothing() -> None:
    report = quick_check(SmallDecoder())
    assert (report.not_checked, "Not checked" in findings.as_text(report)) == ((), False)


@pytest.mark.parametrize("law", LAWS)
def test_explained_for_users(law: str) -> None:
    """An explanation states tolerance and limits, and nothing from this code."""
    words = explain(law)
    assert re.search(r"Tolerated: .*Limits: ", words, re.DOTALL)
    assert not re.search(r"`|Law \d|surely|Keeps what", words)


def test_picture() -> None:
    moved = np.array([[1.0, 0.0, np.nan], [0.0, 1.0, np.nan], [1.0, 1.0, np.nan]])
    moved[0, 1] = 0.5
    mask = MeasuredMask(moved, np.tri(3, dtype=bool), 0.1)
    assert findings.rows_of(mask) == ["■! ", "□■ ", "■■ "]


def test_json(sound: CheckReport, broken: CheckReport) -> None:
    found = json.loads(findings.as_json(broken))
    assert (found["obeys"], found["exit_code"]) == (False, 1)
    assert found["findings"][0]["pair"] == [0, 1]
    assert found["leaks"] == [[i, j] for i in range(24) for j in range(i + 1, 24)]
    assert json.loads(findings.as_json(sound))["leaks"] == []


def test_junit(sound: CheckReport, broken: CheckReport) -> None:
    suite = ElementTree.fromstring(findings.as_junit(broken))
    assert suite.get("failures") == str(len(broken.broken)) == str(len(suite.findall(".//failure")))
    assert suite.get("tests") == str(len(suite.findall("testcase"))) == str(len(broken.findings))
    suite = ElementTree.fromstring(findings.as_junit(sound))
    assert suite.get("failures") == "0"
    assert [case.get("name") for case in suite if case.find("skipped") is not None] == [
        finding.law for finding in sound.findings if finding.verdict == DOES_NOT_APPLY
    ]


def test_a_number_that_is_none_is_written_as_none() -> None:
    assert findings.amount_text(float("inf")) == "NaN"
    assert findings._finite(float("inf")) is None
