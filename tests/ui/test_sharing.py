"""The sentence on which heads share the keys and values of the chosen one."""

from types import SimpleNamespace
from typing import Any

import pytest

from ui import explain, run_view


@pytest.mark.parametrize(("group", "others"), [(1, ""), (2, "with head 1."), (3, "with heads 1, 2.")])
def test_the_others_are_called_heads_not_key_value_heads(
    monkeypatch: pytest.MonkeyPatch, group: int, others: str
) -> None:
    monkeypatch.setattr(run_view, "shape", lambda *_: (1, 6))
    look: Any = SimpleNamespace(
        model=None, run=SimpleNamespace(attention="self"), head=lambda *_: SimpleNamespace(group=group)
    )
    text = explain.sharing(look, 0, 0)
    assert text == (others and f"Head 0 shares key-value head 0 {others}")
