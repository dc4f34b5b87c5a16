"""The browser parts: of each view one module, three homes, and nothing from elsewhere.

python -m pytest tests/viz/test_components.py
"""

import pytest

from viz.components import VIEWS, source

NAMESPACE = "http://www.w3.org/2000/svg"  # a name, which nobody fetches


@pytest.mark.parametrize("home", ["streamlit.js", "anywidget.js", "page.js"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_one_module_that_fetches_nothing(view: str, home: str) -> None:
    script = source(*VIEWS[view], home)
    for text in (script.replace(NAMESPACE, ""), source(f"{view}.css")):
        assert "http" not in text
        assert "import " not in text
    assert script.count("export function draw(element, data, onPick)") == 1
    assert script.count("export default") == (home != "page.js")
