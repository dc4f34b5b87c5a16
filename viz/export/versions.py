"""The versions that run, as exports and reports name them."""

from importlib import metadata

NAMED = ("unmask", "torch", "transformers")


def version() -> str:
    """Of the installed package; a checkout has none."""
    return _of("unmask") or "checkout"


def versions() -> str:
    """Of NAMED, those that are installed: "unmask checkout, torch 2.13.0, transformers 5.23.0"."""
    found = {name: version() if name == "unmask" else _of(name) for name in NAMED}
    return ", ".join(f"{name} {one}" for name, one in found.items() if one)


def _of(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
