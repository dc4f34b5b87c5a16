"""A few of the hostile inputs on every page; `python -m tests.faults.hostile` runs all 500."""

import pytest

from tests.faults import hostile
from ui.page import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("checked_soon")]  # opens every page many times


@pytest.mark.parametrize("page", [page for page in PAGES if page != "pages/mask_check.py"])  # checks a whole model
@pytest.mark.parametrize("number", [3])
def test_what_was_sent_to_do_harm_does_none(page: str, number: int) -> None:
    hostile.show(number, page)


@pytest.mark.parametrize("page", [page for page in PAGES if hostile.LINKS[page].TEXT])
@pytest.mark.parametrize(
    "text", ["a", "🦊 漢字 é عربي\n**b** $x$ :red[z] ` <pad><start> \x00\x07\n<script>alert(1)</script>"]
)
def test_an_odd_text_is_shown_as_text(page: str, text: str) -> None:
    link = hostile.LINKS[page]
    app = hostile.opened(page, {link.model_fields[link.TEXT].alias or link.TEXT: text})
    assert not app.error
    assert app.get("bidi_component") or app.get("html")


@pytest.mark.parametrize(
    "body",
    [
        "<p onclick='alert(1)'>a</p>",
        "<p><script>alert(1)</script>",
        '<img src="a">',
        "<a href='javascript:alert(1)'>a</a>",
    ],
)
def test_markup_that_came_with_a_text_would_be_found(body: str) -> None:
    tags = hostile.Tags()
    tags.feed(body)
    assert tags.wrong


def test_a_picture_that_the_page_drew_is_no_harm() -> None:
    tags = hostile.Tags()
    tags.feed(f"<img alt='a head' src='{hostile.DRAWN[0]}PHN2Zz4='>")
    assert not tags.wrong


def test_a_link_is_one_and_escaped_it_is_text() -> None:
    assert hostile.LINK.search("a [a](javascript:alert(1))")
    assert not hostile.LINK.search(r"a \[a\](javascript:alert(1))")


def test_the_links_of_all_pages_are_tried() -> None:
    assert set(hostile.LINKS) == set(PAGES)
