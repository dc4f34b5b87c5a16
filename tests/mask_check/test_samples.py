"""Every patient is caught, by the law that names it; its sound neighbour is not."""

from functools import cache

import pytest
import torch

from i18n import HAN, Message, say, spoken
from mask_check.check import check
from mask_check.findings import BROKEN, CheckReport
from mask_check.formats import verdict_of
from mask_check.registry import BUG_LAWS, SAMPLES, SOUND
from model.bug_clinic.comparison import BUGS

SICK = [patient for patient in SAMPLES.values() if patient.law]


@cache
def report_of(key: str) -> CheckReport:
    """The patient's check, made once."""
    return check(SAMPLES[key].make())


@pytest.mark.parametrize("patient", SICK, ids=lambda patient: patient.key)
def test_every_patient_is_caught_by_the_law_that_names_it(patient) -> None:
    report = report_of(patient.key)
    assert report.exit_code == 1
    assert report.finding(patient.law).verdict == BROKEN


@pytest.mark.parametrize("patient", SICK, ids=lambda patient: patient.key)
def test_another_text_shows_it_too(patient) -> None:
    assert check(patient.make(), seed=1, length=19).finding(patient.law).verdict == BROKEN


@pytest.mark.parametrize("number_type", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("patient", SOUND, ids=lambda patient: patient.key)
def test_sound_ones_obey(patient, number_type: torch.dtype) -> None:
    report = check(patient.make().to(number_type))
    assert report.obeys, report.broken
    assert report.dtype == str(number_type).removeprefix("torch.")


def test_a_patient_that_breaks_one_law_breaks_no_other() -> None:
    alone = {
        "flex",
        "packed",
        "counts-pads",
        "cached-padding",
        "cropped",
        "chunked-steps",
        "training",
        "source",
        "document-mask",
        "encoder-causal",
    }
    assert alone <= set(SAMPLES)
    for key in alone:
        assert [finding.law for finding in report_of(key).broken] == [SAMPLES[key].law]


def test_all_of_the_clinics_bugs_are_patients() -> None:
    """But for those that are not in one attention alone: its targets, another's module, other rows' masks."""
    assert set(BUG_LAWS) == {bug.key for bug in BUGS} - {"targets", "one-module", "repeat"}
    assert set(BUG_LAWS) <= set(SAMPLES)


def test_each_says_what_it_is() -> None:
    assert all(patient.said and patient.title for patient in SAMPLES.values())
    assert len({patient.name for patient in SAMPLES.values()}) == len(SAMPLES)


@pytest.mark.parametrize("patient", SAMPLES.values(), ids=lambda patient: patient.key)
def test_every_sentence_of_a_report_is_read_in_any_language(patient) -> None:
    report = report_of(patient.key)
    words = [report.declared, verdict_of(report), patient.name, *(finding.words for finding in report.findings)]
    assert [one for one in words if not isinstance(one, Message)] == []
    with spoken("zh"):
        assert [one for one in words if not HAN.search(say(one))] == []
