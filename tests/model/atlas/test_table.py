"""Tests of `weight_there`: how much each head's marked queries attend to its marked keys."""

import numpy as np
import pytest

from model.atlas.table import weight_there
from model.base import Model
from model.masks import MaskSpec

TEXT = "the cat sat on the mat"


def test_the_mean_of_the_marked_queries_over_the_marked_keys_together(tiny: Model) -> None:
    trace = tiny.run(tiny.encode([TEXT]))
    found = weight_there(trace, 0, trace.spec, (3, 5), (1, 2))
    for layer, head in np.ndindex(2, 3):
        weights = trace.weights(layer, head)
        expected = (weights[3, 1] + weights[3, 2] + weights[5, 1] + weights[5, 2]) / 2
        assert found[layer, head] == pytest.approx(float(expected), abs=1e-6)


def test_blocked_cells_are_left_out(tiny: Model) -> None:
    """Query 1 cannot see the later key 2 and does not count; if no query counts, the result is NaN."""
    trace = tiny.run(tiny.encode([TEXT]))
    with_blocked, without = (weight_there(trace, 0, trace.spec, some, (2,)) for some in ((1, 4), (4,)))
    assert np.array_equal(with_blocked, without)
    assert np.isnan(weight_there(trace, 0, trace.spec, (1,), (2,))).all()
    assert (weight_there(trace, 0, MaskSpec(causal=False), (1,), (2,)) > 0).all()


@pytest.mark.parametrize(("queries", "keys"), [((), (1,)), ((1,), ()), ((99,), (1,)), ((1,), (-1,))])
def test_marks_that_are_not_there_are_refused(tiny: Model, queries: tuple[int, ...], keys: tuple[int, ...]) -> None:
    trace = tiny.run(tiny.encode([TEXT]))
    with pytest.raises(ValueError, match=r"expected (queries|keys) from 0 to \d+, at least one, got"):
        weight_there(trace, 0, trace.spec, queries, keys)
