"""The words around the pictures.

python -m pytest tests/ui/test_explain.py
"""

from pathlib import Path

import pytest

from model import catalog
from model.settings import Settings
from tests.model.huggingface import families
from ui import explain


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("marian", ", 3 encoder + 2 decoder + 2 cross layers, 3 encoder + 4 decoder + 4 cross heads, context 47."),
        ("t5", ", 3 encoder + 2 decoder + 2 cross layers, 4 heads, context 512."),
        ("gemma2", ", 3 layers, 4 heads sharing 2 key-value heads, context 47."),
        ("bert", ", 3 layers, 4 heads, context 47."),
    ],
)
def test_what_was_found_in_a_model_names_its_heads_once_where_all_attentions_have_as_many(
    tmp_path: Path, name: str, sentence: str
) -> None:
    model = catalog.load(str(families.save(name, tmp_path)), settings=Settings())
    assert sentence in explain.model_found(model)


def test_what_was_found_in_our_own_model() -> None:
    assert ", 6 layers, 6 heads, context " in explain.model_found(catalog.load("story"))
