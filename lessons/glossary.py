"""The glossary, a file for each language."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from i18n import language

FOLDER = Path(__file__).parent


class Term(BaseModel):
    """A term of the glossary; viz/lessons/glossary.py has its picture."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str
    meaning: str


def glossary() -> Mapping[str, Term]:
    """Return the terms in the user's language, by the word in a lesson's links (word:head)."""
    return _read(language())


@cache
def _read(name: str) -> dict[str, Term]:
    text = (FOLDER / name / "words.yaml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Term]).validate_python(yaml.safe_load(text))
