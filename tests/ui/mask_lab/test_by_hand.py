"""The worksheet's language: the reader's where a font has its letters, else English, and then the page says so.

python -m pytest tests/ui/mask_lab/test_by_hand.py
"""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib import font_manager
from pypdf import PdfReader
from streamlit.testing.v1 import AppTest

from model.language import spoken
from model.mask_lab.by_hand import KEYS, QUERIES, VALUES, by_hand
from ui.mask_lab.by_hand import printed_in, sheet
from viz.mask_lab import worksheet

ROOT = Path(__file__).parents[3]
GIVEN = tuple(map(np.array, (QUERIES, KEYS, VALUES)))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """install(*names): fonts that have every letter, beside matplotlib's own, which has no Chinese."""
    own = next(font for font in font_manager.fontManager.ttflist if font.name == worksheet.OWN)
    missing = worksheet._missing

    def install(*names: str) -> None:
        fonts = [own, *(font_manager.FontEntry(own.fname, name=name) for name in names)]
        monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
        monkeypatch.setattr(worksheet, "_missing", lambda font, text: "" if font.name in names else missing(font, text))

    return install


def test_a_chinese_worksheet_needs_a_font_with_chinese(install: Callable[..., None]) -> None:
    with spoken("zh"):
        install()
        assert printed_in() == "en"
        install("Comic Sans")  # no family that has Chinese
        assert printed_in() == "en"
        install("WenQuanYi Micro Hei")
        assert printed_in() == "zh"
    install()
    assert printed_in() == "en"


def test_a_worksheet_is_in_the_language_that_it_is_printed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    found = by_hand(*GIVEN, masked=True)
    with spoken("zh"):
        pdf = sheet(found, GIVEN, "en", answers=True)()
    (page,) = PdfReader(io.BytesIO(pdf)).pages
    assert "Attention by hand" in page.extract_text()
    assert "The causal mask holds" in page.extract_text()
    told = {}
    monkeypatch.setattr(worksheet, "worksheet", lambda *_, **words: told.update(words) or b"")
    sheet(found, GIVEN, "zh", answers=False)()
    assert told["title"] == "手算注意力"
    assert "有因果掩码" in told["task"]


@pytest.mark.parametrize("installed", [[], ["Noto Sans CJK JP"]])
def test_the_page_says_where_the_worksheets_are_in_english(install: Callable[..., None], installed: list[str]) -> None:
    install(*installed)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.query_params.update({"lang": "zh", "section": "hand"})
    app.switch_page("pages/mask_lab.py")
    app.run()
    assert not app.exception, app.exception[0].stack_trace
    assert [one.value for one in app.caption if "练习纸是英文的" in one.value] == (
        [] if installed else ["练习纸是英文的：这台服务器上没有安装中文字体。"]
    )
