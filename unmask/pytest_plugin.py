"""The pytest plugin: the fixture `assert_causal`, and `pytest --causal FILE.py:CLASS`, a test of a module."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(name="assert_causal")
def causal_fixture() -> Callable[..., Any]:
    """unmask.assert_causal, imported when it is first asked for."""
    import unmask

    return unmask.assert_causal


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "test that a module is causal; repeatable"
    parser.addoption("--causal", action="append", default=[], metavar="FILE.py:CLASS", help=words)


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    items += [CausalItem.from_parent(session, name=name) for name in config.getoption("--causal")]


class CausalItem(pytest.Item):
    """A test that one module is causal."""

    def runtest(self) -> None:
        import unmask

        unmask.assert_causal(self.name)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        return str(excinfo.value)

    def reportinfo(self) -> tuple[str, None, str]:
        return self.name, None, f"causal: {self.name}"
