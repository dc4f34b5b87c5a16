"""Tests that every faulty sample is found by the law that names it, and that its sound counterpart obeys."""

import re
from functools import cache

import pytest
import torch
from torch.nn.attention import flex_attention

from i18n import HAN, Message, say, spoken
from mask_check.check import check
from mask_check.findings import BROKEN, CANNOT_TELL, LAWS, CheckReport, verdict_of
from mask_check.sample_networks import SmallConfig, SmallDecoder
from mask_check.samples import BUG_LAWS, SAMPLES, SOUND
from model.bug_clinic.bugs import BUGS
from tests.mask_check.variants import VARIANTS

pytestmark = pytest.mark.slow  # checks a hundred modules

SICK = [patient for patient in SAMPLES.values() if patient.law]


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run FlexAttention uncompiled, as conftest.py does, in checks other than those of report_of."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@cache
def report_of(key: str) -> CheckReport:
    """Return the report on a sample, made once."""
    return check(SAMPLES[key].make(), thorough=SAMPLES[key].law == "compile")


@pytest.mark.parametrize("patient", SICK, ids=lambda patient: patient.key)
def test_every_patient_breaks_the_law_that_names_it_and_no_other_but_by_what_follows_from_it(patient) -> None:
    report = report_of(patient.key)
    assert report.exit_code == 1
    assert report.finding(patient.law).verdict == BROKEN
    assert {finding.law for finding in report.broken} - {patient.law} <= ALSO.get(patient.key, set())


def test_positions_counted_over_pads_break_no_mask() -> None:
    words = "In one forward pass in eval mode it obeys its mask .* Broken: Padding on the left."
    report = report_of("counts-pads")
    assert re.match(words, verdict_of(report)), verdict_of(report)
    assert "counts positions over pads" in report.finding("padding-left").words


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("patient", {one.law: one for one in SICK}.values(), ids=lambda patient: patient.key)
def test_another_text_shows_it_too(patient) -> None:
    report = check(patient.make(), seed=1, length=19, thorough=patient.law == "compile")
    assert report.finding(patient.law).verdict == BROKEN


@pytest.mark.parametrize("patient", SOUND, ids=lambda patient: patient.key)
def test_sound_ones_obey(patient) -> None:
    assert report_of(patient.key).obeys, report_of(patient.key).broken


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("number_type", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("patient", SOUND[::3], ids=lambda patient: patient.key)
def test_sound_ones_obey_in_other_number_types(patient, number_type: torch.dtype) -> None:
    report = check(patient.make().to(number_type))
    assert report.obeys, report.broken
    assert report.dtype == str(number_type).removeprefix("torch.")


# Other laws that a sample breaks as a consequence of its mistake: pairs that leak make rows with pads, documents and
# caches differ from the row alone, and other kernels from the leaking one. All others break one law, their own.
LEAKING = {"reach", "gradients", "padding-right", "padding-left", "pad-content", "packing", "cache", "kernels"}
ALSO = {
    **dict.fromkeys(("future", "sdpa", "hidden", "view", "query-axis", "after-softmax", "inverted"), LEAKING),
    **dict.fromkeys(("transposed", "first-layer", "or", "twin", "wide"), LEAKING),
    **dict.fromkeys(("pads", "repeated", "half-added", "wrong-axis"), LEAKING - {"reach", "gradients", "packing"}),
    "encoder-pads": {"cross"},  # cross-attention reads what the encoder computes from pads
    "unprojected": {"parameters"},  # the projection is not used
    "diagonal": {"cache"},  # the diagonal of the new queries, not of all keys
}


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.key)
def test_other_causes_of_the_same_laws(variant) -> None:
    assert [finding.law for finding in check(variant.make()).broken] == [variant.law]


def test_output_projections_of_zero_are_no_mistake() -> None:
    """Modules may be initialized so that layers add nothing at first: many gradients are 0, and no position matters."""
    module = SmallDecoder(SmallConfig(packs_by=None))
    for block in module.blocks:
        torch.nn.init.zeros_(block.attention.output.weight)
        torch.nn.init.zeros_(block.attention.output.bias)
    torch.nn.init.zeros_(module.position_embedding.weight)
    report = check(module)
    assert not report.broken
    assert report.finding("positions").verdict == CANNOT_TELL


def test_every_law_has_a_sample_that_breaks_it() -> None:
    assert {finding.law for patient in SICK for finding in report_of(patient.key).broken} == set(LAWS)


def test_all_of_the_clinics_bugs_are_patients() -> None:
    """The exceptions are not in one attention alone: its targets, a module shared with another, other rows' masks."""
    assert set(BUG_LAWS) == {bug.key for bug in BUGS} - {"targets", "one-module", "repeat"}
    assert set(BUG_LAWS) <= set(SAMPLES)


def test_each_says_what_it_is() -> None:
    assert all(patient.said and patient.title for patient in SAMPLES.values())
    assert len({patient.name for patient in SAMPLES.values()}) == len(SAMPLES)
    assert not [patient.key for patient in SAMPLES.values() if patient.title.endswith(".")], "a title is no sentence"


@pytest.mark.parametrize("patient", SAMPLES.values(), ids=lambda patient: patient.key)
def test_every_sentence_of_a_report_is_read_in_any_language(patient) -> None:
    report = report_of(patient.key)
    words = [report.declared, verdict_of(report), patient.name, *(finding.words for finding in report.findings)]
    assert [one for one in words if not isinstance(one, Message)] == []
    with spoken("zh"):
        assert [one for one in words if not HAN.search(say(one))] == []
