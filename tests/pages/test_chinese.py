"""Every page in Chinese: it opens, and contains no English.

The words are those that a user sees: labels, captions, tables, titles and alternative texts of pictures. Names stay
(GPT-2, Transformer, L3 H2, softmax), and so does what the user typed or a model answered (translate="no"); three
English words in a row are a failure.
"""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from i18n import say
from model.atlas.unit import SAMPLE as ATLAS_SAMPLE
from model.bug_clinic.comparison import ADDED
from tests.apptest import key_of
from tests.viz.packet import unpacked
from ui import cross_attention as dates
from ui import widgets
from ui.export.export_files import SECTIONS
from ui.padding import OURS
from ui.page import PAGES
from ui.sidebar.models import EXAMPLES
from ui.why_causal.controls import FIRST_TEXT
from ui.why_causal.live_training import fables

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("checked_soon")]  # opens every page many times

ROOT = Path(__file__).parents[2]
ENGLISH = re.compile(r"\b[A-Za-z]{2,}(?:[ ,;:]+[a-z]{2,}){2,}")
NOT_WORDS = re.compile(
    r"<style.*?</style>|<script.*?</script>|<code.*?</code>|<(\w+)[^>]* translate=\"no\"[^>]*>.*?</\1>|<[^>]*>|```.*?```|`[^`]*`|\$[^$]*\$|https?://\S*|:material/\w+:",
    re.DOTALL,
)
# texts that the models read, which stay English
READ = (*EXAMPLES.values(), ADDED, *OURS, *dates.EXAMPLES.values(), *dates.ADDED_LINES, FIRST_TEXT, fables())
LONG = "The cat sat on the mat. " * 30
LIFTED = {"causal": "false"}
IN_THIS_LAYER = LIFTED | {"scope": "layer"}
PADDED = {"padding": "false", "text": "Once\nThe cat sat on the mat again."}
TWO_LINES = {"text": "a b\nc d e f", "padding_mask": "both", "position_ids": "counted"}
DRAWN = '{"documents":".","prefix":2,"drawn":[["open",1,4,1,4]]}'
STATES = {  # page -> links to what it shows only after a press. Without the Mask Lab's "hand", whose tokens are
    # English, and "fill", which shows torch's own errors
    "app.py": [
        LIFTED, IN_THIS_LAYER, PADDED, {"text": LONG}, {"text": LONG, "zoom": "5-12,0-9"}, {"text": "a cat\n" * 40},
        {"model": "dates", "text": "the third of May 1998"}, {"view": "numbers"},
        *({"view": view, "causal": "false"} for view in ("tokens", "arcs", "bars", "carried", "why")),
    ],
    "pages/mask_lab.py": [
        {"section": "effect", "masks": '{"causal":false,"sliding":2}'}, {"section": "reach"}, {"section": "steps"},
        {"section": "code", "masks": DRAWN, "by": "words"},
    ],
    "pages/layers.py": [LIFTED, {"across": "token", "over": "flow"}, {"by": "sentences"},
                        {"across": "all", "causal": "false", "by": "words"}],
    "pages/ablation.py": [{"ranking": "true", "way_off": "mask"}, {"heads_off": ""}],
    "pages/compare.py": [
        {"differs": "text", "b_text": "Tom sat", "patching": "true", "by": "words"},
        {"differs": "model", "b_model": "dates"},
        *({"patching": "true", "patches": "h1.2,a3.0", "patch_of": of} for of in ("positions", "k", "pairs")),
    ],
    "pages/head_atlas.py": [
        {"atlas_section": "find", "source": "random", "text": "猫看见狗"},
        {"atlas_section": "find", "text": "", "back": "-3"},
        {"atlas_section": "all", "x": "entropy", "y": "distance", "causal": "false"}, {"source": "text", "text": " "},
        {"source": "file", "atlas_section": "find"},
    ],
    "pages/why_causal.py": [
        *({"step": str(step)} for step in range(2, 6)),
        {"text": "7 " * 400},
    ],
    "pages/padding.py": [{"pad": "right", "padding_mask": "off"}, TWO_LINES],
    "pages/generation.py": [
        {"generation_section": "lift"}, {"generation_section": "cost", "temperature": "0"}, {"model": "dates"},
    ],
    "pages/cross_attention.py": [
        {"cross_padding": "false"}, {"cross_causal": "false", "cross_padding": "false", "date_text": "3/4/97"},
        {"date_text": "31 February 2021"},
    ],
    "pages/pixels.py": [LIFTED, IN_THIS_LAYER, {"part": "write"}, {"part": "finish"}],
    "pages/images.py": [{"mask": "window", "removed": "7,8,13"}, {"mode": "place", "head": "0"}, {"source": "upload"}],
    "pages/bug_clinic.py": [
        {"bug": bug, "layer": "0", "head": "0"} for bug in ("view", "repeat", "float-width")
    ],
    "pages/mask_check.py": [
        {"what": "patient", "patient": key} for key in ("chunked-steps", "encoder-pads", "sound-window")
    ],
    "pages/export.py": [
        LIFTED, *({"picture": kind} for kind in ("every", "arcs", "tokens", "bars", "carried", "why")),
    ],
    "pages/lessons.py": [
        {"lesson": "both_masks", "step": "2"}, {"lesson": "why_training", "step": "99"}, {"lesson": "no_such"},
    ],
}  # fmt: skip
SQUEEZED = ["".join(text.split()) for text in (*READ, ATLAS_SAMPLE.read_text(encoding="utf-8"))]  # spaces ignored
LINES = sorted({line for text in READ for line in text.splitlines() if line}, key=len, reverse=True)
SHOWN = {"label", "body", "help", "placeholder", "options", "alt", "text", "title", "caption", "name", "hovertemplate",
         "value"}  # fmt: skip


def opened(name: str, link: dict[str, str]) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.query_params.update(link, lang="zh")
    app.switch_page(name)
    app.run()
    assert not app.exception, app.exception[0].stack_trace
    return app


def english_on(app: AppTest) -> set[str]:
    """Return the English of a page, without what the user typed and PyTorch's error of a bug that crashes."""
    typed = [line for box in app.text_area for line in (box.value or "").splitlines() if line.strip()]
    crash = app.error[0].value if "bug" in app.query_params and app.error else ""
    found = set()
    for text in texts(app):
        for line in typed:
            text = text.replace(line, " ")
        found |= {words.strip() for words in english(text)}
    return {words for words in found if words not in crash}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_chinese_says_nothing_in_english(name: str) -> None:
    app = opened(name, {})
    assert not english_on(app)
    title = next(one.value for one in app.main.markdown if one.value.startswith("### "))
    assert re.search("[\u4e00-\u9fff]", title)


@pytest.mark.parametrize(("name", "link"), [(name, link) for name, links in STATES.items() for link in links])
def test_what_a_link_opens_says_nothing_in_english(name: str, link: dict[str, str]) -> None:
    assert not english_on(opened(name, link))


@pytest.mark.usefixtures("in_chinese")
@pytest.mark.parametrize("section", SECTIONS[1:])
def test_the_other_sections_of_export_say_nothing_in_english(section: str) -> None:
    app = opened("pages/export.py", {})
    app.segmented_control(key=key_of(app, "section")).set_value(widgets.plain(say(section))).run()
    assert not english_on(app)
    if section == SECTIONS[-1]:  # zipfile's own message stays English
        app.file_uploader(key="take_export").upload("x.npz", b"PK no more", "application/zip").run()
        assert "x.npz 未能打开：需要 Unmask 保存的 NPZ 文件" in app.error[0].value


def english(shown: str) -> list[str]:
    """Return the runs of English words in a text that are not part of a text that the models read."""
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
    """Yield the words of a Plotly figure, under the names in SHOWN."""
    found = figure if isinstance(figure, str) else getattr(figure, "spec", "")
    if isinstance(found, str) and found.startswith("{"):
        yield from _words(json.loads(found))


def _of_a_packet(header: Any) -> Iterator[str]:
    """Yield the words of a canvas, without the tokens that it shows."""
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
