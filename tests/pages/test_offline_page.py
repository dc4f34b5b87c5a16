"""The offline page that Explore offers for the app's own decoders: it opens with Explore's current choices."""

import base64
import re
from typing import Any

import pytest

from model import catalog, gpt2
from tests.pages.explore import Explore
from tests.pages.test_export import TEXT, downloads
from tests.viz.packet import unpacked
from ui import controls
from ui.widgets import plain


def about(html: str) -> dict[str, Any]:
    """Return the header that the page passes to its own scripts."""
    (found,) = re.findall(r'id="about">([^<]+)<', html)
    header: dict[str, Any] = unpacked(base64.b64decode(found))[0]
    return header


def test_explore_offers_a_page_that_holds_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its text, masks, head, row, query and scope; it is made only when requested."""
    taken = downloads(monkeypatch)
    more = {"row": "2", "pad": "right", "scope": "layer", "query": "1"}
    explore = Explore(text=f"A dog\n{TEXT}", causal="false", layer="2", head="3", **more)
    assert "Offline page" not in taken
    explore.app.session_state["offline"] = True
    explore.app.run()
    html = taken["Offline page"]()
    assert TEXT in html
    header = about(html)
    assert (header["head"], header["masks"]["causal"], header["masks"]["padding"]) == ([2, 3], False, True)
    assert (header["row"], header["query"]) == (1, 1)
    assert re.findall(r"<option [^>]*selected[^>]*>([^<]*)", html) == ["right", "this layer only"]


def test_the_query_of_an_offline_page_is_the_last_token_of_a_merged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    explore = Explore(text=TEXT, by="words", query="3")
    explore.app.session_state["offline"] = True
    explore.app.run()
    query = about(taken["Offline page"]())["query"]
    pieces = catalog.load("story").encode([TEXT], "left").pieces[0]
    assert "".join(pieces[1 : query + 1]).replace("·", " ").strip() == "Once upon a"


def test_explore_says_of_a_model_that_is_too_large_that_no_page_can_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = downloads(monkeypatch)
    monkeypatch.setattr(gpt2, "MAX_IN_BROWSER", 1_000_000)
    monkeypatch.setattr(controls, "MAX_IN_BROWSER", 1_000_000)
    explore = Explore(text=TEXT)
    explore.app.session_state["offline"] = True
    explore.app.run()
    assert not taken
    words = "Offline pages need a model of at most 1 million parameters with GPT-2's tokenizer."
    assert words in [plain(caption.value) for caption in explore.app.caption]
