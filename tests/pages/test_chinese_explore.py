"""Explore in Chinese where more appears than at first: other views of the head, lifted masks, a long text, padding."""

import pytest

from tests.pages.explore import Explore
from tests.pages.test_chinese import english, texts

VIEWS = ("tokens", "arcs", "bars", "carried", "why", "numbers")
STATES = {
    "without the causal mask": {"causal": "false"},
    "in this layer only": {"causal": "false", "scope": "layer"},
    "with padding that is seen": {"padding": "false", "text": "Once\nThe cat sat on the mat again."},
    "a long text": {"text": "The cat sat on the mat. " * 30},
    "a part of it": {"text": "The cat sat on the mat. " * 30, "zoom": "5-12,0-9"},
    "too many lines": {"text": "a cat\n" * 40},
    "no text": {"text": " "},
    "a translator": {"model": "dates", "text": "the third of May 1998"},
}


def said_in_english(page: Explore) -> set[str]:
    """But for what the reader typed."""
    typed = [line for line in page.app.text_area(key="text").value.splitlines() if line.strip()]
    found = set()
    for shown in texts(page.app):
        for line in typed:
            shown = shown.replace(line, " ")
        found |= {words.strip() for words in english(shown)}
    return found


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("causal", ["true", "false"])
def test_a_view_of_the_head(view: str, causal: str) -> None:
    assert not said_in_english(Explore(lang="zh", view=view, causal=causal))


@pytest.mark.parametrize("state", STATES)
def test_a_state_of_the_page(state: str) -> None:
    assert not said_in_english(Explore(lang="zh", **STATES[state]))
