"""The worksheet's language: the user's if a font has its letters, otherwise English, with a note on the page."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader
from streamlit.testing.v1 import AppTest

from viz.export import fonts
from viz.mask_lab import worksheet

ROOT = Path(__file__).parents[3]
HELD = {"en": "The causal mask is on", "zh": "有因果掩码"}
SAID = ["练习纸是英文的：这台服务器上没有安装中文字体。"]


@pytest.mark.usefixtures("in_chinese")
@pytest.mark.parametrize(("installed", "printed"), [(True, "zh"), (False, "en")])
def test_a_worksheet_is_in_a_font_s_language(installed: bool, printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "writes", lambda language: installed)
    taken: dict[str, Callable[[], bytes]] = {}
    monkeypatch.setattr("streamlit.download_button", lambda label, data, *_, **__: taken.update({label: data}))
    app = opened(lang="zh")
    assert [one.value for one in app.caption if one.value in SAID] == ([] if installed else SAID)
    arguments: dict[str, Any] = {}
    monkeypatch.setattr(worksheet, "worksheet", lambda *_, **words: arguments.update(words) or b"")
    taken["练习纸"]()  # made outside the page's run
    assert HELD[printed] in arguments["task"]


def test_it_says_what_is_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Callable[[], bytes]] = {}
    monkeypatch.setattr("streamlit.download_button", lambda label, data, *_, **__: taken.update({label: data}))
    opened()
    (page,) = PdfReader(io.BytesIO(taken["Worksheet with answers"]())).pages
    assert "Attention by hand" in page.extract_text()
    assert HELD["en"] in page.extract_text()


def opened(**link: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.query_params.update(link | {"section": "hand"})
    app.switch_page("pages/mask_lab.py")
    app.run()
    assert not app.exception, app.exception[0].stack_trace
    return app
