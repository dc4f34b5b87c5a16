"""Tests of the layer numbers that Python takes and returns if only some layers of the network have attention."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unmask
from tests.model.huggingface.test_families import saved
from unmask.notebook import OverSteps

TEXT = "the cat sat on a mat"
PART = {"queries": (0, 2), "keys": (0, 2)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return unmask.load(saved("zamba", tmp_path_factory.mktemp("zamba")))  # with attention in layers 2 and 4


@pytest.fixture(scope="module")
def run(model: Any) -> Any:
    return model.run(TEXT)


def over_steps(run: Any) -> OverSteps:
    one_step = {name: shares[None] for name, shares in run.measures().items()}
    return OverSteps("folder", (0,), np.zeros(1, np.float32), one_step, numbers=run.numbers)


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.head(2, 0),
        lambda run: run.tokens(2, 0, by="words"),
        lambda run: run.arcs(2, [0, 1]),
        lambda run: run.mask(2, 0),
        lambda run: run.head_part(2, 0, **PART),
        lambda run: run.q(2),
        lambda run: run.rollout(2),
        lambda run: run.ablate([(0, 0), (2, 0)]),
        lambda run: run.value_weighted(2, 0),
        lambda run: run.under({"layers": [2]}),
        lambda run: unmask.report(run, [(2, 0)]),
        lambda run: over_steps(run).head(2, 0),
    ],
)
def test_a_layer_that_is_not_there_is_refused_with_the_numbers_of_those_that_are(
    call: Callable[[Any], object], run: Any
) -> None:
    with pytest.raises(ValueError, match=r"from (0|-2) to 1 \(2, 4 in the network\), got"):
        call(run)


def test_the_documented_numbers(model: Any, run: Any) -> None:
    """docs/notebook.md: arguments count the layers with attention, labels have the network's number, `residual` counts
    all layers.
    """
    assert repr(run.head(1, 0)).startswith("L4 H0")
    assert repr(run.ablate([(1, 0)])).startswith("L4 H0 off")
    assert model.run(TEXT, masks={"sliding": 2, "layers": [1]}).title.endswith("masks in L4, causal mask elsewhere")
    for table in (run.to_dataframe(), run.flow().to_dataframe(), model.atlas([TEXT]).to_dataframe()):
        assert sorted(set(table["layer"])) == [2, 4]
    layers = model.model.network.config.num_hidden_layers
    assert run.residual(layers).shape == run.residual(0).shape
    with pytest.raises(ValueError, match=f"expected a layer from 0 to {layers}, got"):
        run.residual(layers + 1)
