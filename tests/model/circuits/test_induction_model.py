"""Tests that patching, composition and OV and QK circuits find the same circuit in the induction model that ships."""

from collections.abc import Iterator

import numpy as np
import pytest

from model import catalog
from model.base import Model
from model.circuits.ov_qk import KINDS, composition, copying_scores, qk
from model.circuits.patching import PatchMetric, PatchPair
from model.inference.calls import continuation_ids
from tests.model.circuits.test_patching import head_effects

LETTERS = "abcdefghijklmnopqrst"
PREVIOUS = 6  # the head of layer 0; in layer 1 all are induction heads


@pytest.fixture(scope="module")
def induction() -> Model:
    return catalog.load("induction")


def pairs(model: Model) -> Iterator[tuple[PatchPair, PatchMetric]]:
    """Yield texts A of 20 letters and the first 6 again, and B with two of the 20 swapped: another letter follows."""
    for seed in range(3):
        first = list(np.random.default_rng(seed).permutation(list(LETTERS)))
        other = first.copy()
        other[5], other[13] = first[13], first[5]
        a, b = (model.run(model.encode(["".join([*some, *first[:6]])])) for some in (first, other))
        ids = [continuation_ids(model, letter)[0][0] for letter in (first[6], first[14])]
        yield PatchPair(model, a, 0, b, 0), PatchMetric(b.batch.ids.shape[1] - 1, *ids)


def test_patching_composition_and_circuits_agree(induction: Model) -> None:
    received = []
    for pair, metric in pairs(induction):
        a, b = pair.measured(metric)
        shares = np.stack([head_effects(pair, metric, layer) for layer in (0, 1)]) / (a - b)
        assert shares[0, PREVIOUS] == pytest.approx(1, abs=0.02)
        assert np.abs(np.delete(shares[0, :-1], PREVIOUS)).max() < 0.02
        assert shares[1, -1] == pytest.approx(1, abs=0.02)
        received.append([pair.path_effects(metric, (1, 0), part, 0) / (a - b) for part in ("q", "k", "v")])
    q, k, v = np.mean(received, 0)
    assert k.argmax() == PREVIOUS
    assert k[PREVIOUS] > 10 * max(np.abs([q, v]).max(), np.delete(np.abs(k), PREVIOUS).max())
    keys = composition(induction)[KINDS.index("k"), 1, :, 0]
    assert (keys.argmax(1) == PREVIOUS).all()
    assert copying_scores(induction)[1].min() > 0.99
    profiles = np.array([qk(induction, 0, head).profile for head in range(8)])
    assert [head for head in range(8) if profiles[head].argmax() == 1] == [PREVIOUS]
