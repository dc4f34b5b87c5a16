"""What a page begins with.

python -m pytest tests/ui/test_page.py
"""

import re
from pathlib import Path

import streamlit as st

from ui import page


def test_each_part_that_the_browser_fetches_early_is_one_of_this_streamlit_s() -> None:
    fetched = re.findall(r'import\(new URL\("static/js/([^"]+)"', page._fetch_early())
    assert [name.split(".")[0] for name in fetched] == list(page.EARLY)
    scripts = Path(st.__file__).parent / "static" / "static" / "js"
    assert all((scripts / name).is_file() for name in fetched)
