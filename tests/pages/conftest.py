"""Fixtures for tests of several pages: tiny random models of other architectures than the app's own."""

from pathlib import Path

import pytest


class Folders(dict[str, str]):
    """Folders of models by family; each model is saved when it is first requested."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def __missing__(self, family: str) -> str:
        from tests.model.huggingface.families import save

        self[family] = str(save(family, self._root / family))
        return self[family]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Read-only."""
    return Folders(tmp_path_factory.mktemp("models"))
