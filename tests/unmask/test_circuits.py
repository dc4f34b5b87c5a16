"""Tests of circuits in Python: arrays that display themselves."""

from pathlib import Path

import numpy as np
import pytest

import unmask
from model.circuits.ov_qk import composition, ov, qk
from model.circuits.patching import PatchMetric, PatchPair
from model.decoder import DecoderModel
from tests.model.circuits.by_hand import CLEAN, CORRUPT, INDUCTION, PREVIOUS, WORDS, by_hand
from tests.model.circuits.test_patching import head_effects
from unmask.notebook import LoadedModel


@pytest.fixture(scope="module")
def known() -> DecoderModel:
    return by_hand()


def test_patching_a_run_with_another(known: DecoderModel) -> None:
    model = LoadedModel(known)
    a, b = model.run(CLEAN), model.run(["p", CORRUPT], row=1, pad_side="left")
    found = b.patch(a, answer="q", instead_of=WORDS.index("t"))
    metric = PatchMetric(5, WORDS.index("q"), WORDS.index("t"))
    expected = [head_effects(PatchPair(known, a.trace, 0, b.trace, 1), metric, layer)[:-1] for layer in (0, 1)]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    assert repr(found).startswith("“q” − “t” after p: Measured in A: ")
    assert "L1 H0" in found._repr_html_()
    assert found.to_dataframe().columns.tolist() == ["layer", "head", "value"]
    assert b.patch(a).numpy()[INDUCTION] > 0  # by default, the answer is A's most likely token
    with pytest.raises(ValueError, match="the same number of tokens in A and B: A has 2, B has 6"):
        b.patch(model.run("p"))
    with pytest.raises(ValueError, match="first tokens differ"):
        b.patch(a, answer="q", instead_of="q")
    with pytest.raises(ValueError, match="expected another run of this by hand, loaded once for both, got story"):
        b.patch(unmask.load("story").run("once"))


def test_circuits_of_a_model(known: DecoderModel) -> None:
    model = LoadedModel(known)
    first, second = model.ov(*INDUCTION, "x y x"), model.qk(*PREVIOUS)
    np.testing.assert_array_equal(first.numpy(), ov(known, *INDUCTION, [8, 9]).effects)
    np.testing.assert_array_equal(second.numpy(), qk(known, *PREVIOUS).effects)
    assert repr(first) == "L1 H0: OV circuit, copying score 1.00"
    assert "favours keys at distance 1" in repr(second)
    whole = model.composition()
    np.testing.assert_array_equal(whole.numpy(), composition(known))
    strongest = whole.to_dataframe().sort_values("value").dropna().iloc[-1].tolist()
    assert strongest[:5] == ["k", *INDUCTION, *PREVIOUS]
    assert "Strongest K-composition: L1 H0 reads the output of L0 H0" in repr(whole)
    assert all("<table" in one.page() for one in (first, second, whole))
    with pytest.raises(ValueError, match="expected a text or token ids, got 5"):
        model.ov(1, 0, 5)
    with pytest.raises(ValueError, match="token from 0 to 10, got 11"):
        model.ov(1, 0, [11])


def test_the_tokens_of_a_saved_circuit_wrap(known: DecoderModel, tmp_path: Path) -> None:
    page = LoadedModel(known).ov(1, 0).save(tmp_path / "ov.html").read_text(encoding="utf-8")
    assert '<td class="wraps">' in page
    assert "table.numbers td.wraps { white-space: normal; }" in page
