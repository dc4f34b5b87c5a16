"""What tests of several pages share: tiny random models that are not ours."""

from pathlib import Path

import pytest


class Folders(dict[str, str]):
    """By family, the folder of a model, which is saved when it is first asked for."""

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
