"""A kind of mask is two entries: one of model/mask_kinds.py, one of viz/mask_styles.py. Nothing else names the kinds.

python -m pytest tests/test_mask_kinds.py
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.mask_kinds import KINDS
from viz.mask_styles import STYLES

ROOT = Path(__file__).parents[1]
TABLES = {"model/mask_kinds.py", "viz/mask_styles.py"}
WITH_A_MEANING_OF_THEIR_OWN = {"causal", "padding", "padding_queries"}  # what has to do with order, or with pads
HOMONYMS = {  # a kind's name where it is another thing's
    "window": r"viz/components/.*|unmask/mask.py|viz/heads/.*",
}


def names_in(source: str) -> Iterator[str]:
    """The identifiers and the strings of a Python module, its docstrings apart."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "value"):
            found = getattr(node, field, None)
            if isinstance(found, str):
                yield found


def naming(name: str) -> set[str]:
    """The source files that name it."""
    found = set()
    for folder in ("model", "viz", "ui", "unmask", "pages"):
        for file in (ROOT / folder).rglob("*.py"):
            if name in names_in(file.read_text(encoding="utf-8")):
                found.add(str(file.relative_to(ROOT)))
        for file in (ROOT / folder).rglob("*.js"):
            if re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")):
                found.add(str(file.relative_to(ROOT)))
    return found
if __name__=="__main__":
    for n in KINDS:
        if n not in WITH_A_MEANING_OF_THEIR_OWN: print(n, sorted(naming(n)-TABLES))
