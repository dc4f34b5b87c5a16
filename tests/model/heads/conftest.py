"""Fixture: a padded batch of two texts."""

import pytest

from model.base import Model
from model.text import TokenBatch


@pytest.fixture(scope="session")
def batch(tiny: Model) -> TokenBatch:
    return tiny.encode(["the cat sat on the mat and the cat", "the mat on"], "left")
