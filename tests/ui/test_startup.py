"""The start of a process: no e-mail prompt, and no list of emoji for rows of options, which takes 1/7 s."""

import sys
import tomllib
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from i18n import LANGUAGES

APP = Path(__file__).parents[2] / "app.py"


def test_the_first_start_does_not_wait_for_an_address_of_e_mail() -> None:
    settings = tomllib.loads((APP.parent / ".streamlit/config.toml").read_text(encoding="utf-8"))
    assert settings["server"]["showEmailPrompt"] is False


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_page_asks_for_no_list_of_emoji(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamlit.emojis", None)  # an import would be an error on the page
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params["lang"] = language
    app.run()
    assert not app.exception
    words = [option.content for row in app.get("button_group") for option in row.proto.options]
    assert {name.strip() for name in words} > set(LANGUAGES.values())
