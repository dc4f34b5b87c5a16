"""Jobs for tests only: they wait, fail or end their process. None needs torch, so that new processes start fast."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from i18n import msg

if TYPE_CHECKING:
    from model.base import Model
    from model.trace import Trace


def process_of(trace: Trace) -> int:
    """Return the id of the process that runs the job."""
    return os.getpid()


def process() -> int:
    return os.getpid()


def wait(seconds: float, marked: str = "") -> str:
    """Sleep, after creating the file `marked` if one is given."""
    if marked:
        Path(marked).touch()
    time.sleep(seconds)
    return "done"


def hold(marked: str) -> str:
    """Create the file `marked`, then wait until a file named `over` exists beside it, for at most a minute."""
    Path(marked).touch()
    end = time.monotonic() + 60
    while not Path(marked).with_name("over").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return "done"


def die(marks: str, times: int) -> int:
    """Kill the process, as by kill -9, in the first `times` calls; then return the number of calls."""
    return _tried(marks, times, signal.SIGKILL)


def stop(marks: str, times: int) -> int:
    """Suspend the process, so that its beats stop, in the first `times` calls; then return the number of calls."""
    return _tried(marks, times, signal.SIGSTOP)


def refuse(text: str) -> None:
    raise ValueError(f"expected something else, got {text}")


def fail(text: str) -> None:
    raise KeyError(text)


def double(array: bytes) -> np.ndarray:
    return 2 * np.frombuffer(array)


def name(model: Model) -> str:
    return model.name


def take(size: int) -> int:
    return len(bytearray(size))


def append(file: str, word: str) -> str:
    """Append a word to a file, which records the order of calls."""
    with Path(file).open("a") as lines:
        lines.write(word + "\n")
    return word


def _tried(marks: str, times: int, sign: int) -> int:
    folder = Path(marks)
    tries = len(list(folder.iterdir())) + 1
    (folder / str(tries)).touch()
    if tries <= times:
        os.kill(os.getpid(), sign)
        time.sleep(60)
    return tries


def count(report: Callable[[int], None], many: int, *, word: str = "", pause: float = 0.0) -> str:
    """Report the numbers below `many`, with pauses, as a long background job does."""
    for number in range(many):
        report(number)
        time.sleep(pause)
    return f"{word} {many}"


def circumstances(report: Callable[[int], None]) -> tuple[int, str]:
    return os.nice(0), os.environ["OMP_NUM_THREADS"]


def refuse_later(report: Callable[[int], None], number: int) -> None:
    report(number)
    raise ValueError(f"expected something else, got {number}")


def refuse_said() -> None:
    """Raise an error whose message can be translated."""
    raise ValueError(msg("expected a text, got none"))


def refuse_said_later(report: Callable[[int], None]) -> None:
    refuse_said()


class Unreadable(Exception):
    """An exception that can be pickled but not unpickled, because __init__ takes two arguments and args has one."""

    def __init__(self, field: str, cause: str) -> None:
        super().__init__(f"{field}: {cause}")


def unreadable_later(report: Callable[[Any], None], reported: bool) -> None:
    if reported:
        report(Unreadable("a", "b"))
        time.sleep(600)
    raise Unreadable("a", "b")


def no_memory_later(report: Callable[[Any], None]) -> None:
    raise MemoryError
