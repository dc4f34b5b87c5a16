"""The pages on one head, many heads and files in Chinese, in the states that a link opens: nothing is in English."""

import pytest
from streamlit.testing.v1 import AppTest

from i18n import say
from tests.pages.test_chinese import ROOT, english, texts
from ui.export.sections import SECTIONS

STATES = {
    "pixels": ({"causal": "false"}, {"causal": "false", "scope": "layer"}, {"part": "write"}, {"part": "finish"}),
    "export": (
        {"causal": "false"},
        *({"picture": kind} for kind in ("every", "arcs", "tokens", "bars", "carried", "why")),
    ),
    "layers": ({"causal": "false"}, {"across": "token", "over": "flow"}, {"across": "all", "causal": "false"}),
    "ablation": ({"ranking": "true", "way_off": "mask"}, {"heads_off": ""}),
    "compare": ({"differs": "text", "b_text": "Tom sat"}, {"differs": "model", "b_model": "dates"}),
}
TITLES = {"layers": "逐层观察", "ablation": "消融", "compare": "对比"}


@pytest.mark.parametrize(("page", "query"), [(page, query) for page, some in STATES.items() for query in some])
def test_what_a_link_opens_says_nothing_in_english(page: str, query: dict[str, str]) -> None:
    assert not english_on(opened(page, query))


@pytest.mark.usefixtures("in_chinese")
@pytest.mark.parametrize("section", SECTIONS[1:])
def test_the_other_sections_of_export_say_nothing_in_english(section: str) -> None:
    app = opened("export", {})
    app.segmented_control(key="section").set_value(say(section)).run()
    assert not english_on(app)
    if section == SECTIONS[-1]:  # what zipfile says of it stays as it is
        app.file_uploader(key="take_export").upload("x.npz", b"PK no more", "application/zip").run()
        assert "x.npz 未能打开：需要 Unmask 保存的 NPZ 文件" in app.error[0].value


@pytest.mark.parametrize(("page", "title"), [("layers", "逐层观察"), ("ablation", "消融"), ("compare", "对比")])
def test_a_title_is_in_chinese(page: str, title: str) -> None:
    assert opened(page, {}).markdown[0].value.startswith(f"### {title}")


def opened(page: str, query: dict[str, str]) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    app.switch_page(f"pages/{page}.py")
    app.query_params.update({"lang": "zh"} | query)
    app.run()
    assert not app.exception, app.exception[0].stack_trace
    return app


def english_on(app: AppTest) -> set[str]:
    return {words.strip() for shown in texts(app) for words in english(shown)}
