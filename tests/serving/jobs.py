"""Jobs that no page asks for: they wait, fail, or end the process that does them. None needs torch: a process that does
one begins at once."""

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
    """Who did it."""
    return os.getpid()


def process() -> int:
    return os.getpid()


def wait(seconds: float, marked: str = "") -> str:
    """Leaves a mark when it begins."""
    if marked:
        Path(marked).touch()
    time.sleep(seconds)
    return "done"


def hold(marked: str) -> str:
    """Until a file called over lies beside the mark that it leaves when it begins; a minute at most."""
    Path(marked).touch()
    end = time.monotonic() + 60
    while not Path(marked).with_name("over").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return "done"


def die(marks: str, times: int) -> int:
    """As by kill -9, the first so many times; then how often it was tried."""
    return _tried(marks, times, signal.SIGKILL)


def stop(marks: str, times: int) -> int:
    """Answers no more, nor beats, the first so many times."""
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
    """Who came when."""
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
    """Long ones, of the background."""
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
    """In whatever language it is asked in."""
    raise ValueError(msg("expected a text, got none"))


def refuse_said_later(report: Callable[[int], None]) -> None:
    refuse_said()


class Unreadable(Exception):
    """Can be pickled, and not read again, for its words are made of two things."""

    def __init__(self, field: str, cause: str) -> None:
        super().__init__(f"{field}: {cause}")


def unreadable_later(report: Callable[[Any], None], reported: bool) -> None:
    if reported:
        report(Unreadable("a", "b"))
        time.sleep(600)
    raise Unreadable("a", "b")


def no_memory_later(report: Callable[[Any], None]) -> None:
    raise MemoryError
