"""Files that are there whole, or not at all: whoever reads one never finds a half."""

from pathlib import Path


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
