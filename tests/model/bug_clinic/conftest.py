"""Fixture: the run in which the bugs are examined."""

import pytest

from model.base import Model
from model.trace import Trace
from tests.model.bug_clinic.texts import TEXT, read


@pytest.fixture(scope="module")
def trace(story: Model) -> Trace:
    return read(story, TEXT)
