"""A fixture with the model that most of these tests run."""

import pytest

import unmask
from unmask.notebook import LoadedModel


@pytest.fixture(scope="module")
def story() -> LoadedModel:
    return unmask.load("story")
