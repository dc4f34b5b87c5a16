"""Tests of a standalone page: its scripts are named by their hashes, and what is typed is escaped."""

import base64
import hashlib
import html
import re

from viz.html import tag
from viz.saved.standalone import Canvas, frame, page


def scripts(document: str) -> list[str]:
    return re.findall(r'<script type="module">(.*?)</script>', document, re.S)


def test_every_script_is_named_by_the_policy_and_no_other() -> None:
    document = page("a page", [Canvas("heatmap", b"\0one"), Canvas("tokens", b"two"), Canvas("heatmap", b"three")])
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="(.*?)"', document)[0])
    assert "default-src 'none'" in policy
    found = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts(document)]
    assert re.findall(r"'sha256-(.*?)'", policy) == found
    assert len(found) == 3  # a module for each kind of view, and the one that draws them
    packets = re.findall(r'<script type="text/plain" id="(packet\d)">(.*?)</script>', document)
    assert [(name, base64.b64decode(data)) for name, data in packets] == [
        ("packet0", b"\0one"),
        ("packet1", b"two"),
        ("packet2", b"three"),
    ]


def test_what_is_typed_is_escaped() -> None:
    document = page("</title><script>1</script>", [tag("p", "<b>bold</b>"), "<i>plain</i>"])
    assert "<script>1" not in document
    assert "<b>" not in document
    assert "<i>" not in document
    assert "&lt;/title&gt;" in document


def test_a_frame_holds_the_page() -> None:
    document = page("a page", [tag("p", 'it\'s "quoted" & <marked>')])
    held = re.fullmatch(r'<iframe .*srcdoc="([^"]*)"></iframe>', frame(document, 'a "title"', 321), re.S)
    assert html.unescape(held[1]) == document
    assert 'height="321"' in held[0]
