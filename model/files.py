"""Files that are there whole, or not at all: whoever reads one never finds a half."""

import os
import stat
from pathlib import Path

from i18n import say


def write(path: Path, data: bytes) -> None:
    """Whatever happens meanwhile (a full disk, kill -9), path holds what it held before, or all of data.

    Raises OSError with a sentence; nothing of data is left then.
    """
    beside = path.with_name(path.name + ".tmp")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        why = f"{path} was not written ({error.strerror}); what was there before is as it was"  # not shown
        raise OSError(why) from error


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes.

    Never waits, as opening a FIFO or a device would. Raises OSError for what is no regular file, or is larger.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(say("{path} is not a regular file", path=path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(say("{path} has more than {most:,} bytes", path=path, most=most))
    return data


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has neither it nor FIFOs
