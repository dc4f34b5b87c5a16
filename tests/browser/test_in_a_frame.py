"""Tests of uploads in a frame of another site: Streamlit refuses them, and the page says so beforehand."""

from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect

from tests.browser.explore import TIMEOUT

SENTENCE = "Uploads do not work here"
LABEL = "Your own lesson"


@pytest.fixture
def another_site(tmp_path: Path, server: str) -> Iterator[str]:
    """Yield the address of a page at localhost, another site than 127.0.0.1, with the lessons in a frame."""
    (tmp_path / "index.html").write_text(f'<iframe src="{server}/lessons" width="1200" height="800"></iframe>')
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with HTTPServer(("127.0.0.1", 0), handler) as site:
        Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://localhost:{site.server_port}/"
        site.shutdown()


def test_in_another_site_s_frame_uploads_are_refused(browser: Browser, server: str, another_site: str) -> None:
    page = browser.new_page()
    page.goto(f"{server}/lessons")
    opened(page)
    assert page.get_by_text(SENTENCE).count() == 0
    page.goto(another_site)
    opened(page.frame_locator("iframe"))
    expect(page.frame_locator("iframe").get_by_text(SENTENCE)).to_be_visible()
    page.close()


def opened(page: Page | FrameLocator) -> None:
    """Open the part of the page with the uploader."""
    page.get_by_text(LABEL, exact=True).first.click(timeout=TIMEOUT)
    expect(page.locator("[data-testid=stFileUploader]")).to_be_visible()
