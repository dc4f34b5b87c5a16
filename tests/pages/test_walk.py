"""Random walks over pages: what a session shows after some steps is what its link, opened anew, shows."""

import random
import re
from collections.abc import Mapping
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.apptest import charts
from tests.pages.page import Page
from tests.pages.test_links import NOT_IN_LINKS, by_key, change, labels_are_values, name_of, visit  # noqa: F401
from ui import link
from ui.page import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("checked_soon", "labels_are_values")]

WALKS, STEPS = 10, 16
TEXTS = [
    "The cat saw a dog and the cat ran",
    "Once upon a time\nThe cat saw a dog and the cat ran",
    "A\nThe king and the queen went home. They were glad.",
    "word word word word word word",
    "Zürich 🙂 is nice — isn't it?",
    "x",
]
MASKS = ['{"causal":false}', '{"sliding":3}', '{"drawn":[["block",3,1,4,2]]}', '{"prefix":3,"layers":[2]}']
OF_A_SESSION = {  # pages whose text is of another kind, or whose results come from a check or a clock
    "pages/lessons.py", "pages/mask_check.py", "pages/generation.py", "pages/images.py", "pages/pixels.py",
    "pages/cross_attention.py", "pages/why_causal.py",
}  # fmt: skip
WALKED = sorted(set(PAGES) - OF_A_SESSION)


def shown(app: AppTest) -> dict[str, Any]:
    """Return all that a page displays, and every widget's value, without a session's count of drawings ("epoch")."""
    parts = [one.proto for one in app.get("bidi_component") if one.proto.component_name != "unmask_chart"]
    return {
        "html": [one.proto.body for one in app.get("html") if not one.proto.unsafe_allow_javascript],
        "said": [one.value for kind in (app.markdown, app.caption, app.info, app.error, app.success) for one in kind],
        "charts": charts(app),
        "parts": {one.component_name: re.sub(rb'"epoch": \d+', b"", one.bytes or one.json.encode()) for one in parts},
        "values": {name_of(key): one.value for key, one in by_key(app).items() if name_of(key) != "example"},
    }


class Walk(Page):
    script = "app.py"  # the open page


def step(page: Walk, choose: random.Random) -> str:
    """Do one thing that a user may do; return it in words: a page, a link to masks, a text, a model or any widget."""
    widgets = by_key(page.app)
    kind = choose.choices(("page", "masks", "text", "model", "widget"), (3, 1, 3, 1, 12))[0]
    if kind in ("page", "masks"):
        script = "pages/mask_lab.py" if kind == "masks" else choose.choice(WALKED)
        query = {"masks": choose.choice(MASKS), "text": choose.choice(TEXTS)} if kind == "masks" else {}
        page.app.query_params.clear()
        page.app.query_params.update(query)
        page.go(script)
        page.script = script
        return f"{script} {query}"
    if kind in ("text", "model"):
        value = choose.choice(TEXTS if kind == "text" else ["story", "induction"])
        page.set(**{kind: value})
        return f"{kind}: {value!r}"
    key = choose.choice(sorted(key for key in widgets if name_of(key) not in NOT_IN_LINKS))
    if change(widgets[key]):
        page.run()
    return f"{key}: {widgets[key].value!r}"


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_link_opened_anew_shows_what_the_session_shows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Mapping[str, str]] = []
    both = link._with_and_without

    def noted(view: link.Link) -> tuple[link.Link, link.Link]:
        bare, whole = both(view)
        written.append(whole.parameters())
        return bare, whole

    monkeypatch.setattr(link, "_with_and_without", noted)
    choose = random.Random(seed)
    page = Walk(text=TEXTS[0])
    steps = []
    for number in range(STEPS):
        steps.append(step(page, choose))
        if number % 2:
            page.run()  # writes the link, which a fragment's run need not do
            assert shown(visit(page.script, dict(written[-1]))) == shown(page.app), steps
