"""Tests of the browser components: one module for each view, three homes, and nothing fetched from elsewhere."""

import re
from string import Formatter

import pytest

from i18n import spoken
from viz.components import VIEWS, WORDS, source, words

MADE = {  # names that the scripts put together from parts
    "bar_weight", "bar_change", "weight", "change", "looks", "looked", "looks_blocked", "looked_blocked",
    "looks_nowhere", "looked_nowhere", "head", "large",
}  # fmt: skip
NAMESPACE = "http://www.w3.org/2000/svg"  # a name, which is never fetched


@pytest.mark.parametrize("home", ["streamlit.js", "anywidget.js", "page.js"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_one_module_that_fetches_nothing(view: str, home: str) -> None:
    script = source(*VIEWS[view], home)
    for text in (script.replace(NAMESPACE, ""), source(f"{view}.css")):
        assert "http" not in text
        assert "import " not in text
    assert script.count("export function draw(element, data, onPick)") == 1
    assert script.count("export default") == (home != "page.js")


def test_what_a_view_says_comes_with_its_packet_and_all_of_that_is_said() -> None:
    for view in VIEWS:
        sentences = WORDS[view] | (WORDS["cells"] if "cells.js" in VIEWS[view] else {})
        script = source(*(part for part in VIEWS[view] if part != "packet.js"))
        named = set(re.findall(r"words\.(?!py)(\w+)|data-(?:say|label)=\"(\w+)\"|\? \"(\w+_here)\"", script))
        used = {name for pair in named for name in pair if name}
        assert used <= set(sentences) | {"comma"}, view
        assert set(sentences) - used <= MADE | {"comma"}, view


def test_words_have_only_places_that_the_browser_can_fill() -> None:
    for sentences in WORDS.values():
        for sentence in sentences.values():
            assert all(not form and not turned for _, _, form, turned in Formatter().parse(sentence))


def test_words_are_in_the_readers_language() -> None:
    with spoken("zh"):
        assert words("mask")["cell"] != WORDS["mask"]["cell"]
