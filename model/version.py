"""The version that runs, as exports and reports name it."""

from importlib import metadata


def version() -> str:
    """That of the installed package; a checkout has none."""
    try:
        return metadata.version("unmask")
    except metadata.PackageNotFoundError:
        return "checkout"
