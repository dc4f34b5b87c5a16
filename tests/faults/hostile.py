"""Hostile inputs for every page: texts, links and files that were made to do harm, or damaged by accident.

    python -m tests.faults.hostile [FIRST] [LAST]     inputs FIRST to LAST - 1 of 500, on all pages

Input number n is deterministic: a text, some valid and some invalid fields of the page's link, and a named file where
the page accepts one. A page may report what is wrong with them; it shows no exception and none of the markup in them.
"""

import json
import random
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from streamlit.testing.v1 import AppTest

from tests.apptest import charts, done_once
from ui.ablation import AblationLink
from ui.bug_clinic.controls import ClinicLink
from ui.circuits.ov_qk import CircuitsLink
from ui.compare import CompareLink
from ui.cross_attention import DatesLink
from ui.export import export_files as export
from ui.generation.writing import GenerationLink
from ui.head_atlas.controls import AtlasLink
from ui.images import ImagesLink
from ui.inference import ServingLink
from ui.layers import LayersLink
from ui.lessons.choices import LessonLink
from ui.link import Link, View
from ui.mask_check import CheckLink
from ui.mask_lab import lab as mask_lab
from ui.padding import PaddingLink
from ui.page import PAGES
from ui.pixels import PixelsLink
from ui.why_causal.controls import WhyCausalLink

INPUTS = 500
ROOT = Path(__file__).parents[2]
LINKS: dict[str, type[Link]] = {
    "app.py": View,
    "pages/mask_lab.py": View,
    "pages/layers.py": LayersLink,
    "pages/ablation.py": AblationLink,
    "pages/compare.py": CompareLink,
    "pages/head_atlas.py": AtlasLink,
    "pages/circuits.py": CircuitsLink,
    "pages/serving.py": ServingLink,
    "pages/why_causal.py": WhyCausalLink,
    "pages/padding.py": PaddingLink,
    "pages/generation.py": GenerationLink,
    "pages/cross_attention.py": DatesLink,
    "pages/pixels.py": PixelsLink,
    "pages/images.py": ImagesLink,
    "pages/bug_clinic.py": ClinicLink,
    "pages/mask_check.py": CheckLink,
    "pages/export.py": View,
    "pages/lessons.py": LessonLink,
}
MARKUP = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</p></div><iframe srcdoc='<script>alert(1)</script>'>",
    "<a href='javascript:alert(1)'>a</a>",
    "[a](javascript:alert(1))",
    "![a](http://192.0.2.1/a.png)",
    ":red[a] :material/home: $$\\frac{1}{0}$$ `a` ~~a~~ **a** # a",
    "{{7*7}} ${7*7} %s%n%x {0} {a}",
    "<|endoftext|> <s> </s> <pad> [CLS] [MASK]",
    "=cmd|'/c calc'!A0",
    "'; DROP TABLE heads; --",
    "../../../../etc/passwd",
    "https://192.0.2.1/a?b=c#d",
)
ODD = (
    "\x00", "\x07\x1b[31m", "\u202eabc\u202c", "\u200b\u200d\ufeff", "e" + "\u0301" * 90, "👩‍👩‍👧‍👦" * 5,
    "\ufffd\ufffe", "\t \u00a0\u3000", "ﷺ" * 9, "中文字", "\U000e0001\U000e0041", "𝒳", "1e309", "-0", "NaN", "٣",
)  # fmt: skip
ENDS = ("\n", "\r\n", "\r", "\u2028", "\n\n", "\x0b", "\x85")
VALUES = (
    "", "-1", "0", "1e309", "-inf", "nan", "9" * 60, "1.5", "None", "null", "true", "[]", "{}", "[[[[", "%00", "0.0.0",
    "1-2,3-4", "999999-999999,0-0", '{"causal": "no"}', '{"sliding": 1e99}', '{"drawn": [[0, 0, 9, 9, true]]}', "both",
    "all",
)  # fmt: skip
FILES = (
    b"",
    b"PK\x03\x04",
    b"\x89PNG",
    b"\x93NUMPY\x01",
    b"\xff\xfe\x00",
    b"text\n<script>alert(1)</script>\n",
    b"{}",
    b"a,b\n" * 99,
)
LINK = re.compile(r"(?<!\\)\]\(javascript:")  # in Markdown, where an escaped bracket makes it plain text
NEVER = ("script", "iframe", "object", "embed", "base", "meta", "form", "link")
DRAWN = ("data:image/svg+xml;base64,", "data:image/png;base64,")  # the app's own: fetch nothing and run no script


def inputs(number: int, page: str) -> tuple[dict[str, str], tuple[str, bytes]]:
    """Return the fields of a page's link, and a file as (name without suffix, content)."""
    chance = random.Random(f"{number} {page}")
    link = LINKS[page]
    fields = {
        field.alias or name: field for name, field in link.model_fields.items() if name not in ("model", link.TEXT)
    }
    given = {
        name: _plausible(name, fields[name].annotation, chance) if chance.random() < 0.6 else _odd(chance)
        for name in chance.sample(sorted(fields), min(chance.randint(0, 5), len(fields)))
    }
    if link.TEXT:
        given[link.model_fields[link.TEXT].alias or link.TEXT] = text(chance)
    if chance.random() < 0.1:
        given["model"] = _odd(chance)
    if page == "pages/cross_attention.py":
        given.setdefault("model", "dates")
    name = text(chance)[:100].replace("\0", "")  # no browser sends NUL in a name, and Streamlit refuses it
    return given, (name, chance.choice(FILES))


def text(chance: random.Random) -> str:
    """Return a random text of one or several lines: usually short, sometimes of 3,000 or 99,000 repeated parts."""
    if chance.random() < 0.02:
        return chance.choice(("a", "\n", "<b>", "é ")) * chance.choice((3_000, 99_000))
    lines = []
    for _ in range(chance.choice((1, 1, 1, 2, 3, 20))):
        parts = chance.choices((*MARKUP, *ODD, "the cat sat", "the king and the queen"), k=chance.randint(0, 3))
        lines.append(chance.choice(("", " ")).join(parts))
    return chance.choice(ENDS).join(lines)


def _odd(chance: random.Random) -> str:
    return chance.choice((*VALUES, *MARKUP, *ODD))


def _plausible(name: str, annotation: Any, chance: random.Random) -> str:
    """Return a valid value of a field, as it is written in a link."""
    if name == "section":
        return chance.choice((*mask_lab.SECTIONS, *export.SECTIONS))
    kinds = [annotation, *get_args(annotation)]
    choices = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    return str(chance.choice(choices or ["true", "false", *map(str, range(6)), "1.2", "0.3"]))


def opened(page: str, given: dict[str, str]) -> AppTest:
    """Open a page with a link. Raises AssertionError if it shows an exception, or markup that the link contains."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=900)
    app.switch_page(page)
    for field, value in given.items():
        app.query_params[field] = value
    check(app.run(), f"{page} with {given!r}")
    return app


def show(number: int, page: str) -> AppTest:
    """Open a page with input `number`, including its file. Raises AssertionError as `opened` does."""
    given, (name, data) = inputs(number, page)
    app = opened(page, given)
    for uploader in app.get("file_uploader"):
        ending = uploader.proto.type[0] if uploader.proto.type else ".txt"
        uploader.upload(name + ending, data, "application/octet-stream")
        check(app.run(), f"input {number} on {page}: {given!r}, and the file {name + ending!r} with {data!r}")
    return app


def check(app: AppTest, what: str) -> None:
    assert not app.exception, f"{what}: {app.exception[0].value}"
    for body in _markup(app):
        parser = Tags()
        parser.feed(body)
        assert not parser.wrong, f"{what}: {parser.wrong} in {body[:2000]}"
    for element in app.get("markdown"):
        body = element.proto.body
        assert not LINK.search(body), f"{what}: a link in {body[:2000]}"
        assert "![a](http" not in body, f"{what}: a picture in {body[:2000]}"


def _markup(app: AppTest) -> Iterator[str]:
    """Yield what a browser parses as HTML."""
    for element in app.get("html"):
        if not element.proto.unsafe_allow_javascript:
            yield element.proto.body
    for element in app.get("markdown"):
        if element.proto.allow_html:
            yield element.proto.body
    for chart in charts(app).values():
        yield json.dumps(chart, ensure_ascii=False).replace('\\"', '"')


class Tags(HTMLParser):
    """A parser that collects in `wrong` the tags and attributes that none of the app's pictures and tables has."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        handlers = [name for name, _ in attrs if name.startswith("on")]
        fetched = tag == "img" and not (dict(attrs).get("src") or "").startswith(DRAWN)
        if tag in NEVER or fetched or handlers or any("javascript:" in (value or "") for _, value in attrs):
            self.wrong.append(f"<{tag} {dict(attrs)}>")


def main() -> None:
    first, last = (int(number) for number in (*sys.argv[1:], *("0", str(INPUTS))[len(sys.argv) - 1 :]))
    wrong = 0
    for number in range(first, last):
        for page in PAGES:
            try:
                show(number, page)
            except Exception as error:  # noqa: BLE001 - all are reported
                wrong += 1
                print(f"input {number} on {page}: {type(error).__name__}: {error}"[:3000], flush=True)
        if number % 10 == 9:
            print(f"{number + 1 - first} inputs on {len(PAGES)} pages, {wrong} wrong", flush=True)
    print(f"{last - first} inputs on {len(PAGES)} pages, {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    with done_once():
        main()
