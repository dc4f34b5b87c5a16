"""Every page in Chinese: opens, and says nothing in English.

python -m pytest tests/pages/test_chinese.py

Words of a page are found as the reader finds them: labels, captions, tables, pictures' titles and alternative texts.
Names stay (GPT-2, Transformer, L3 H2, softmax), and so does what the reader typed or a model answered
(translate="no"); three words of English in a row do not.
"""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from model.atlas.texts import SAMPLE as ATLAS_SAMPLE
from model.bug_clinic.comparison import ADDED
from tests.pages.here import Here
from tests.viz.packet import unpacked
from ui import mask_check
from ui.cross_attention import controls as dates
from ui.padding import OURS
from ui.page import PAGES
from ui.sidebar.models import EXAMPLES
from ui.why_causal.controls import FIRST_TEXT
from ui.why_causal.live_training import fables

ROOT = Path(__file__).parents[2]
ENGLISH = re.compile(r"\b[A-Za-z]{2,}(?:[ ,;:]+[a-z]{2,}){2,}")
NOT_WORDS = re.compile(
    r"<style.*?</style>|<script.*?</script>|<code.*?</code>|<(\w+)[^>]* translate=\"no\"[^>]*>.*?</\1>|<[^>]*>|```.*?```|`[^`]*`|\$[^$]*\$|https?://\S*|:material/\w+:",
    re.DOTALL,
)
READ = (
    *EXAMPLES.values(),
    ADDED,
    *OURS,
    *dates.EXAMPLES.values(),
    *dates.LONGER,
    FIRST_TEXT,
    fables(),
)  # by the models
STATES = [  # what is seen of a page only after a press
    *(("pages/why_causal.py", {"step": str(step)}) for step in range(2, 6)),
    ("pages/why_causal.py", {"step": "2", "run": "true", "trained": "true"}),
    ("pages/why_causal.py", {"text": "7 " * 400}),
    ("pages/why_causal.py", {"text": " ", "step": "2"}),
    ("pages/cross_attention.py", {"padding": "false"}),
    ("pages/cross_attention.py", {"causal": "false", "padding": "false", "date_text": "3/4/97"}),
    ("pages/cross_attention.py", {"date_text": "31 February 2021"}),
    ("pages/generation.py", {"generation_section": "lift"}),
    ("pages/generation.py", {"generation_section": "cost", "temperature": "0"}),
    ("pages/generation.py", {"model": "dates"}),
]
# some are shown as tokens
SQUEEZED = [
    "".join(text.split()) for text in (*READ, ATLAS_SAMPLE.read_text(encoding="utf-8"))
]  # some are shown as tokens
LINES = sorted({line for text in READ for line in text.splitlines() if line}, key=len, reverse=True)
SHOWN = (
    "label",
    "body",
    "help",
    "placeholder",
    "options",
    "alt",
    "text",
    "title",
    "caption",
    "name",
    "hovertemplate",
    "value",
)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mask check's too."""
    monkeypatch.setattr(mask_check, "Background", Here)


@pytest.mark.parametrize(("name", "link"), [*((name, {}) for name in PAGES), *STATES])
def test_a_page_in_chinese_says_nothing_in_english(name: str, link: dict[str, str]) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.query_params.update(link, lang="zh")
    app.switch_page(name)
    app.run()
    assert not app.exception, app.exception[0].stack_trace
    found = {words.strip() for shown in texts(app) for words in english(shown)}
    assert not found


@pytest.mark.parametrize(
    ("name", "query"),
    [  # but of the Mask Lab's "hand", whose tokens are English, and "fill", where torch says what does not fit
        ("pages/mask_lab.py", {"section": "effect", "masks": '{"causal":false,"sliding":2}'}),
        ("pages/mask_lab.py", {"section": "reach"}),
        ("pages/mask_lab.py", {"section": "steps"}),
        ("pages/mask_lab.py", {"section": "code", "masks": '{"documents":".","prefix":2,"drawn":[["open",1,4,1,4]]}'}),
        ("pages/lessons.py", {"lesson": "both_masks", "step": "2"}),
        ("pages/lessons.py", {"lesson": "why_training", "step": "99"}),
        ("pages/lessons.py", {"lesson": "no_such"}),
    ],
)
def test_what_is_opened_on_a_page_says_nothing_in_english(name: str, query: dict[str, str]) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.query_params.update(query | {"lang": "zh"})
    app.switch_page(name)
    app.run()
    assert not app.exception, app.exception[0].stack_trace
    assert not {words.strip() for shown in texts(app) for words in english(shown)}


def english(shown: str) -> list[str]:
    """Runs of English words in a text, but those of the texts that the models read, parts of them included."""
    plain = unescape(NOT_WORDS.sub(" ", shown))
    for line in LINES:
        plain = plain.replace(line, " ")
    some = ENGLISH.findall(plain)
    return [words for words in some if not any("".join(words.split()) in text for text in SQUEEZED)]


def texts(app: AppTest) -> Iterator[str]:
    for element in _elements(app._tree):
        proto = element.proto
        for field, value in proto.ListFields():
            if field.name in SHOWN and isinstance(value, str):
                yield value
            elif field.name in SHOWN and not isinstance(value, int | float | bool):
                yield from (one for one in value if isinstance(one, str))
            elif field.name == "spec" or field.name == "figure":
                yield from _of_a_figure(value)
            elif field.name == "bytes" and value:
                yield from _of_a_packet(unpacked(value)[0])


def _elements(node: Any) -> Iterator[Any]:
    for child in getattr(node, "children", {}).values():
        if hasattr(child, "children"):
            yield from _elements(child)
        elif hasattr(child, "proto"):
            yield child


def _of_a_figure(figure: Any) -> Iterator[str]:
    """The words of a Plotly figure, under the names in SHOWN."""
    found = figure if isinstance(figure, str) else getattr(figure, "spec", "")
    if isinstance(found, str) and found.startswith("{"):
        yield from _words(json.loads(found))


def _of_a_packet(header: Any) -> Iterator[str]:
    """What a canvas says; not the tokens that it shows."""
    if isinstance(header, dict):
        for key, one in header.items():
            yield from () if key in ("queries", "keys", "labels") else _of_a_packet(one)
    elif isinstance(header, list):
        for one in header:
            yield from _of_a_packet(one)
    elif isinstance(header, str):
        yield header


def _words(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _words(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from _words(one, name)
    elif isinstance(value, str) and name in SHOWN:
        yield value


def test_english_is_found_and_names_are_not() -> None:
    assert english("<p class='a b c'>注意 <b>how it goes</b></p>") == ["how it goes"]
    assert english("GPT-2 的 L3 H2 用 softmax，`def f(x): return`") == []
