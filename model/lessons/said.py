"""A sentence in no language yet: its name in the files of words, and what stands in its places."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Said:
    """values: text, numbers, or what is said itself. viz/lessons/words.py puts it into a language."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
