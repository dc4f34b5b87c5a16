"""What Streamlit asks of every installed package whenever AppTest opens a page, asked once."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest


@contextmanager
def read_once() -> Iterator[None]:
    """Inside, their metadata is read for components the first time alone: a third of a second, and always the same."""
    from streamlit.components.v2 import manifest_scanner

    with pytest.MonkeyPatch.context() as patch:
        scan = cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", scan)
        yield
