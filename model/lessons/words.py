"""The files of words, one a language: the sentences of the lessons' page, and the glossary."""

from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

FOLDER = Path(__file__).parents[2] / "lessons"


class Term(BaseModel):
    """A word of the field. picture: of viz/lessons/glossary.py."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str
    meaning: str


class Words(BaseModel):
    """sentences: by name, with named places. glossary: by the word in a lesson's links (word:head)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    sentences: dict[str, str]
    glossary: dict[str, Term]


@cache
def words(language: str) -> Words:
    """The words of a language out of model.lessons.shelf.LANGUAGES."""
    return Words.model_validate(yaml.safe_load((FOLDER / f"words.{language}.yaml").read_text(encoding="utf-8")))
