"""Unmask outside its app: `unmask.check(module)` and `unmask.assert_causal(module)`; `python -m unmask check MODEL`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.checking import CannotCheck, Report, assert_causal, check

__all__ = ["CannotCheck", "Report", "assert_causal", "check"]


def __getattr__(name: str) -> Any:
    """What it offers is imported when it is first asked for: torch takes a second, which --help does without."""
    if name not in __all__:
        raise AttributeError(f"module 'unmask' has no attribute {name!r}")
    from unmask import checking

    return getattr(checking, name)
