"""Fixtures of this folder: tiny models of transformers' families, and the circuit of `by_hand`."""

from collections.abc import Callable
from functools import cache

import pytest

from model.decoder import DecoderModel
from tests.model.circuits.by_hand import by_hand
from tests.model.huggingface.family import Family


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Family]:
    """Return a function from a family's name to its models, each made once."""
    return cache(lambda name: Family(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session")
def known() -> DecoderModel:
    return by_hand()
