"""Logging without messages, which may quote a user's text: only locations in the code and types of errors."""

import logging
import sys
import threading
import warnings
from functools import cache
from pathlib import Path
from traceback import format_tb
from types import TracebackType
from typing import Any

Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Redacted(logging.LogRecord):
    """A log record without its message, arguments, and exception message."""

    def __init__(
        self, name: str, level: int, pathname: str, lineno: int, msg: Any, args: Any, exc_info: Raised | None,
        func: str | None = None, sinfo: str | None = None, **_: Any,
    ) -> None:  # fmt: skip
        kind, _error, trace = exc_info or (None, None, None)
        path = "/".join(Path(pathname).parts[-2:])
        text = f"{path}:{lineno}" + (f": {kind.__name__}\n{''.join(format_tb(trace))}" if kind else "")
        super().__init__(name, level, pathname, lineno, text.rstrip(), (), None, func)


@cache
def redact() -> None:
    """Redact the records of every logger of this process, of uncaught exceptions and of warnings."""
    logging.setLogRecordFactory(Redacted)
    sys.excepthook = lambda kind, error, trace: _uncaught((kind, error, trace))
    threading.excepthook = lambda args: _uncaught((args.exc_type, args.exc_value, args.exc_traceback))
    sys.unraisablehook = lambda args: _uncaught((args.exc_type, args.exc_value, args.exc_traceback))
    warnings.showwarning = _warned


def _uncaught(raised: Raised) -> None:
    logging.getLogger(__name__).error("uncaught", exc_info=raised)  # type: ignore[arg-type]


def _warned(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    logger = logging.getLogger("py.warnings")
    logger.handle(logger.makeRecord(category.__name__, logging.WARNING, filename, lineno, "", (), None))
