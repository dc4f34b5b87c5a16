"""Fixtures of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.huggingface import families
from tests.model.huggingface.family import Family


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    """Return a dictionary of families by name, each made at its first use."""

    class Loaded(dict[str, Family]):
        def __missing__(self, name: str) -> Family:
            self[name] = Family(name, tmp_path_factory.mktemp(name))
            return self[name]

    return Loaded()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a llama checkpoint that can be loaded."""
    return families.save("llama", tmp_path / "llama")


@pytest.fixture(scope="module")
def largest() -> Iterator[dict[str, list[float]]]:
    """Yield the largest differences of weights and logits by family, and print them at the end."""
    found: dict[str, list[float]] = {}
    yield found
    for name, (weights, logits) in found.items():
        print(f"{name}: weights {weights:.1e}, logits {logits:.1e}")


@pytest.fixture(params=families.SOME)
def family(request: pytest.FixtureRequest, loaded: dict[str, Family]) -> Family:
    return loaded[request.param]


@pytest.fixture(params=[name for name in families.SOME if name in families.DECODERS])
def decoder(request: pytest.FixtureRequest, loaded: dict[str, Family]) -> Family:
    return loaded[request.param]
