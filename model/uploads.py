"""Archives and arrays that came from a user, read within a limit: what a header says of its size is never believed."""

import io
import zipfile
from typing import NamedTuple

import numpy as np

from i18n import say

MOST_ENTRIES = 1_000  # of an archive: its list alone takes memory
CENTRAL_ENTRY = b"PK\x01\x02"  # what each entry of a ZIP's list begins with
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # bzip2 and LZMA expand a millionfold, without a limit
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class NpyHeader(NamedTuple):
    """What an NPY file says of its cells, which begin at the byte `offset`."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    offset: int


def unzip(data: bytes, most: int) -> dict[str, bytes]:
    """Every file of a ZIP archive by its name, `most` bytes unpacked at the most.

    Raises ValueError for more than that, for too many files and for another compression than ZIP's own; and whatever
    zipfile raises for a damaged archive.
    """
    entries = data.count(CENTRAL_ENTRY)
    if entries > MOST_ENTRIES:
        raise ValueError(say("an archive of {count:,} files", count=entries))
    found: dict[str, bytes] = {}
    left = most
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            if entry.compress_type not in METHODS:
                raise ValueError(say("a compression other than Deflate"))
            with archive.open(entry) as file:
                found[entry.filename] = file.read(left + 1)
            left -= len(found[entry.filename])
            if left < 0:
                raise ValueError(say("more than {most:.0f} MB unpacked", most=most / 2**20))
    return found


def npy_header(data: bytes) -> NpyHeader:
    """The header of an NPY file of version 1.0 or 2.0.

    Raises KeyError for another version, and for damaged bytes whatever numpy's parser raises.
    """
    file = io.BytesIO(data)
    shape, fortran, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    return NpyHeader(shape, fortran, dtype, file.tell())
