"""Unmask outside its app: `unmask.check(module)` and `unmask.assert_causal(module)`; `python -m unmask check MODEL`."""

from unmask.checking import CannotCheck, Report, assert_causal, check

__all__ = ["CannotCheck", "Report", "assert_causal", "check"]
