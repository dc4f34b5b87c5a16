"""The plan of the house: which folder may import what.

    python -m pytest tests/test_house.py

Read from the source, so that an import inside a function counts; and from a fresh interpreter, so that an import by
way of another module does.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [("model", {"streamlit", "plotly"}), ("viz", {"streamlit", "torch"})],
)
def test_no_file_of_a_folder_names_what_it_may_not_import(folder: str, forbidden: set[str]) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"no Python file in {folder}/"
    found = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported_packages(file.read_text(encoding="utf-8"))
        if name in forbidden
    ]
    assert not found


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        ("import torch.nn as nn, json", ["torch", "json"]),
        ("from streamlit.testing import v1", ["streamlit"]),
        ("def f():\n    import plotly", ["plotly"]),
        ("from . import near", []),
    ],
)
def test_the_reader_of_imports_sees_every_form(source: str, packages: list[str]) -> None:
    assert list(imported_packages(source)) == packages


def test_the_catalog_starts_without_transformers_and_without_a_page() -> None:
    assert loaded_by("import model.catalog") & {"torch", "transformers", "streamlit", "plotly"} == {"torch"}


def test_pictures_are_made_without_torch() -> None:
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in (ROOT / "viz").rglob("*.py")]
    names = [name.removesuffix(".__init__") for name in names]
    loaded = loaded_by("".join(f"import {name}\n" for name in names))
    assert "numpy" in loaded
    assert not loaded & {"torch", "streamlit", "transformers"}


def imported_packages(source: str) -> Iterator[str]:
    """The top-level name of every absolute import in it, functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def loaded_by(statements: str) -> set[str]:
    """The modules that a fresh interpreter holds after these statements."""
    program = f"{statements}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())
