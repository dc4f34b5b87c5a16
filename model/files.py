"""Files that are there whole, or not at all: whoever reads one never finds a half. And what a command prints."""

import io
import os
import stat
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from i18n import msg

MAX_ENTRIES = 1_000  # of an archive: its list alone takes memory
CENTRAL_ENTRY = b"PK\x01\x02"  # what each entry of a ZIP's list begins with
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # bzip2 and LZMA expand a millionfold, without a limit
NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # Windows has neither it nor FIFOs
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def unzip(data: bytes, most: int) -> dict[str, bytes]:
    """Every file of a ZIP archive by its name, `most` bytes unpacked at the most. Raises ValueError for more than that,
    for too many files and for another compression than ZIP's own; and whatever zipfile raises for a damaged archive."""
    entries = data.count(CENTRAL_ENTRY)
    if entries > MAX_ENTRIES:
        raise ValueError(msg("an archive of {count:,} files", count=entries))
    found: dict[str, bytes] = {}
    left = most
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            if entry.compress_type not in METHODS:
                raise ValueError(msg("a compression other than Deflate"))
            with archive.open(entry) as file:
                found[entry.filename] = file.read(left + 1)
            left -= len(found[entry.filename])
            if left < 0:
                raise ValueError(msg("more than {most:.0f} MB unpacked", most=most / 2**20))
    return found


def npy_header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """What an NPY file of version 1.0 or 2.0 says of its cells: their shape, whether they are in Fortran's order, their
    dtype, and at which byte they begin. Raises KeyError for another version, and for damaged bytes whatever numpy's
    parser raises."""
    file = io.BytesIO(data)
    shape, fortran, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    return shape, fortran, dtype, file.tell()


def write(path: Path, data: bytes) -> None:
    """Whatever happens meanwhile (a full disk, kill -9), path holds what it held before, or all of data. Raises OSError
    with a sentence; nothing of data is left then."""
    beside = path.with_name(path.name + ".tmp")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        why = f"{path} was not written ({error.strerror}); what was there before is as it was"  # not shown
        raise OSError(why) from error


def to_stdout(text: str) -> int:
    """Print it, with "?" for what the encoding lacks. 0, or 2 where it cannot be printed, which stderr says. Whoever
    reads it may stop before its end, as `head` does, which is no error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still writes as it ends
        if not isinstance(error, BrokenPipeError):
            print(f"It was not printed ({error.strerror}).", file=sys.stderr)  # not shown
            return 2
    return 0


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Never waits, as opening a FIFO or a device would. Raises
    OSError for what is no regular file, or is larger."""
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(msg("{path} is not a regular file", path=path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(msg("{path} has more than {most:,} bytes", path=path, most=most))
    return data
