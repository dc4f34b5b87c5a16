"""Atomic writes, bounded reads of untrusted files and archives, and the output of commands."""

import errno
import io
import os
import stat
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import numpy as np

from i18n import msg

MAX_ENTRIES = 1_000  # of an archive: the list of entries itself takes memory
CENTRAL_ENTRY = b"PK\x01\x02"  # the signature of each entry in a ZIP's central directory
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # bzip2 and LZMA expand a millionfold, without a limit
OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")  # names of files that a process has open
STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # Windows has neither O_NONBLOCK nor FIFOs
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def unzip(data: bytes, most: int) -> dict[str, bytes]:
    """Return every file of a ZIP archive by its name, at most `most` bytes unpacked. Raises ValueError for more bytes,
    too many files, or a compression other than Deflate or none; and whatever zipfile raises for a damaged archive."""
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
    """Return the header of an NPY file of version 1.0 or 2.0: the shape, whether cells are in Fortran order, their
    dtype, and the byte at which they begin. Raises KeyError for another version, and for damaged bytes whatever numpy's
    parser raises."""
    file = io.BytesIO(data)
    shape, fortran, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    return shape, fortran, dtype, file.tell()


def write(path: Path, data: bytes) -> None:
    """Write data to path atomically: whatever happens (a full disk, kill -9), path holds its old content or all of
    data. A symlink is followed; a device, a FIFO or an open file (/dev/stdout) is appended to, not replaced. Raises
    OSError with a full sentence; no part of data is left then, except in these."""
    target = Path(os.path.realpath(path))
    temporary = target.parent / f"{target.name[:50]}.{token_hex(8)}.tmp"  # at most 255 bytes, and unique
    replaced = True
    try:
        if target.is_symlink():  # still a link: one of a loop
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        is_open = str(path.absolute()).startswith(OPEN_FILES)
        replaced = not is_open and (target.is_file() or not target.exists())
        if replaced:
            with temporary.open("xb") as file:
                file.write(data)
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            temporary.replace(target)
        else:
            stream = STREAMS.get(str(path))  # opened by name, a redirected one would be written from its start
            with path.open("ab") if stream is None else os.fdopen(os.dup(stream), "wb") as file:
                file.write(data)
    except OSError as error:
        kept = "; what was there before is as it was" if replaced else ""  # not shown
        raise OSError(f"{path} was not written ({error.strerror}){kept}") from error  # not shown
    finally:
        with suppress(OSError):
            temporary.unlink()  # unless it was renamed


def to_stdout(text: str) -> int:
    """Print text, with "?" for characters that the encoding lacks. Return 0, or 2 if it cannot be printed, with a
    message on stderr. A consumer that stops before the end, as `head` does, is no error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still writes at exit
        if not isinstance(error, BrokenPipeError):
            print(f"It was not printed ({error.strerror}).", file=sys.stderr)  # not shown
            return 2
    return 0


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Never blocks, as opening a FIFO or a device would.
    Raises OSError for a file that is not regular, or is larger."""
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(msg("{path} is not a regular file", path=path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(msg("{path} has more than {most:,} bytes", path=path, most=most))
    return data
