"""Tests that a kind of mask consists of two entries, in model/mask_kinds.py and in viz/mask_styles.py, and that no
other file names the kinds.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from i18n import say, spoken
from model.mask_kinds import KINDS
from viz.mask_styles import STYLES

ROOT = Path(__file__).parents[1]
TABLES = {"model/mask_kinds", "viz/mask_styles"}
OF_ITS_OWN = {"causal", "padding", "padding_queries"}  # kinds with special handling: the order of tokens, and padding
STREAMED = "model/inference/streaming|ui/inference|viz/inference|unmask/runs"  # what a cache keeps of a stream
IMAGES = "(model|ui|viz)/images.*|serving/loaded_models"  # the masks with which captioners are trained
OTHER_THINGS = {  # by a kind's name: files in which the word means something else, as a pattern of paths
    "window": rf"{IMAGES}|viz/components/.*|.*/reach|ui/mask_lab/lab|viz/mask_lab/effect"
    rf"|viz/heads/cells|viz/mask_check|{STREAMED}",
    "chunk": r"model/gpt2",  # chunks of tensors
    **dict.fromkeys(("prefix_lm", "sliding"), IMAGES),
    "prefix": rf"{IMAGES}|model/inference/calls|viz/inference|unmask/runs",  # a cached prefix
    "documents": r"model/inference/(cost|calls)|(ui|viz)/inference|unmask/runs",  # given by their lengths
    "sinks": r"model/(attention|trace|huggingface/internals|heads/.*|atlas/.*|bug_clinic/.*|.*attention_hook|.*fills)"
    rf"|{STREAMED}",
}
DECLARED = r"mask_check/.*"  # a module's declared mask, as in `unmask check --mask window:W`


@cache
def names_of_files() -> dict[str, set[str]]:
    """Return the identifiers and strings of each source file, without docstrings, by its path without suffix."""
    found: dict[str, set[str]] = {}
    for folder in ("model", "lessons", "serving", "mask_check", "viz", "ui", "unmask", "pages"):
        for file in (*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.js")):
            source, path = file.read_text(encoding="utf-8"), str(file.relative_to(ROOT).with_suffix(""))
            found[path] = set(names_in(source) if file.suffix == ".py" else re.findall(r"\w+", source))
    return found


def names_in(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "value"):
            if isinstance(found := getattr(node, field, None), str) and id(node) not in docstrings:
                yield found


@pytest.mark.parametrize("name", sorted(KINDS.keys() - OF_ITS_OWN))
def test_a_kind_is_named_in_the_two_tables_alone(name: str) -> None:
    found = {path for path, names in names_of_files().items() if name in names}
    assert found >= TABLES
    others = re.compile(f"({OTHER_THINGS.get(name, DECLARED)}|{DECLARED})")
    assert not {path for path in found - TABLES if not others.fullmatch(path)}


@pytest.mark.slow
def test_a_kind_that_is_not_in_the_source_is_two_entries() -> None:
    """tests/new_kind.py tests everything that the kind has to appear in."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.new_kind"]
    ran = subprocess.run([*command, "tests/new_kind.py"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


def test_the_two_tables_have_the_same_kinds() -> None:
    assert STYLES.keys() == {*KINDS, "drawn"}
    table = (ROOT / "docs/masks.md").read_text(encoding="utf-8").partition("\n## How")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == KINDS.keys()
    for name, kind in KINDS.items():
        assert (STYLES[name].colour == "") == bool(kind.joins)
        assert (STYLES[name].lines is not None) == (not kind.opens and not kind.joins)
        assert bool(STYLES[name].lifted) == kind.sized
        with spoken("zh"):
            texts = [kind.phrase, STYLES[name].name, STYLES[name].label, STYLES[name].help]
            assert not [words for words in texts if say(words) == words]
