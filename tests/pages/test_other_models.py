"""The Explore page with models that are not built in, and the choices that only some models have."""

import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.apptest import charts
from tests.model.huggingface.families import save
from ui.sidebar.chat import NOTE

APP = str(Path(__file__).parents[2] / "app.py")
TEXT = "the cat sat on a mat and then it saw the cat"


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=120)
    for name, value in query.items():
        app.query_params[name] = value
    return healthy(app.run())


def healthy(app: AppTest) -> AppTest:
    assert not app.exception, app.exception[0].value
    return app


def messages(app: AppTest) -> str:
    notes = [one for one in app.caption if one.value.startswith(":material/info:")]
    return " ".join(box.value for box in [*app.error, *app.warning, *app.info, *notes])


def test_from_two_lines_to_one_and_on() -> None:
    """A widget that is not drawn loses its value; the choice is kept."""
    app = opened(text="the cat\nthe cat sat on a mat", pad="right")
    app.text_area(key="text").set_value("one line alone")
    for _ in range(3):
        healthy(app.run())
    app.text_area(key="text").set_value("two lines\nof another length than this")
    assert healthy(app.run()).radio(key="pad").value == "right"


def test_from_an_encoder_decoder_to_the_story_model_and_on(folders: dict[str, str]) -> None:
    app = opened(model=folders["t5"], text=TEXT, attention="cross", target="on a mat")
    app.selectbox(key="model").set_value("story")
    for _ in range(3):
        healthy(app.run())
    assert app.selectbox(key="model").value == "story"


@pytest.mark.parametrize("attention", ["encoder", "decoder", "cross"])
def test_every_attention_of_a_long_source_and_a_short_target(folders: dict[str, str], attention: str) -> None:
    opened(model=folders["t5"], text="the cat " * 40, target="on a mat", attention=attention, begin="50", end="70")


def test_fewer_targets_than_texts_are_asked_for_and_more_are_left_out() -> None:
    texts = "\n".join(["12 May 2003"] * 19)  # the page takes 16 of them
    assert messages(opened(model="dates", text=texts, target="2003")).startswith(
        "expected one target for each text, got 1 for 16: write one for each, or none."
    )
    app = opened(model="dates", text=texts, target="2003\n" * 19)
    assert not app.error
    captions = [one.value for one in opened(model="dates", text="12 May 2003", target="2003\n2004").caption]
    assert "Target lines read: the first 1 of 2, one for each source line." in captions
    captions = [one.value for one in app.caption]
    assert "Target lines read: the first 16 of 19, one for each source line." in captions


def test_a_source_that_does_not_fit_is_said_to_be_cut(folders: dict[str, str]) -> None:
    app = opened(model=folders["t5"], text="the cat " * 400, target="on a mat")
    assert "Source row 1" in messages(app)


def test_a_links_own_text_and_target_are_left_out_together(folders: dict[str, str]) -> None:
    app = opened(model=folders["t5"], text=TEXT)
    app.text_area(key="target").set_value("on a mat")
    app.session_state["link"] = True
    healthy(app.run())
    without, with_both = (code.value for code in app.code)
    assert "mat" not in without
    assert "target=on+a+mat" in with_both


def test_an_encoder_has_a_causal_switch_that_starts_off(folders: dict[str, str]) -> None:
    app = opened(model=folders["bert"], text=TEXT)
    assert app.toggle(key="causal").value is False
    assert any("on later tokens" in one.proto.body for one in app.get("html")), "which an encoder attends to"
    app.toggle(key="causal").set_value(True)
    healthy(app.run())


def test_a_window_has_a_switch_of_its_own(folders: dict[str, str]) -> None:
    app = opened(model=folders["mistral"], text=TEXT)
    before = charts(app)
    app.toggle(key="window").set_value(False)
    assert charts(healthy(app.run())) != before


@pytest.mark.parametrize(
    ("layer", "text", "words"),
    [
        ("0", "the cat sat on a mat", "Without its window, L0 H0 can attend to tokens at any distance"),
        ("1", "the cat sat on a mat", "The window mask is off, which changes no cell of L1 H0"),  # no window in layer 1
        ("0", "the cat", "The window mask is off, which changes no cell of L0 H0"),  # a text as long as the window
    ],
)
def test_a_window_that_is_off_is_said_to_matter_where_it_does(
    folders: dict[str, str], layer: str, text: str, words: str
) -> None:
    app = opened(model=folders["gemma2"], text=text, window="false", layer=layer, head="0")
    assert words in " ".join(one.proto.body for one in app.get("html"))


def test_a_window_matters_for_padding_that_no_mask_blocks(folders: dict[str, str]) -> None:
    lines = "the cat sat on a mat and then it saw the cat\na cat"
    for padding, words in (("false", "Without its window, L0 H0"), ("true", "which changes no cell of L0 H0")):
        where = {"row": "2", "layer": "0", "head": "0", "pad": "left"}
        app = opened(model=folders["gemma2"], text=lines, window="false", padding=padding, **where)
        assert words in " ".join(one.proto.body for one in app.get("html"))


def test_a_model_whose_folder_goes_away_gives_way_to_the_story_model(tmp_path: Path) -> None:
    folder = save("llama", tmp_path / "llama")
    app = opened(model=str(folder), text=TEXT)
    shutil.rmtree(folder)
    healthy(app.run())
    assert "story model" in messages(app)


def test_a_name_from_a_link_is_not_markdown() -> None:
    app = opened(model="![x](https://example.org/p.png) [log in](https://example.org)")
    assert "![x](" not in messages(app)
    assert "[log in](" not in messages(app)


def test_a_word_that_a_tokenizer_refuses_is_a_sentence(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = save("llama", tmp_path / "llama")
    tokenizer = Tokenizer(models.WordLevel({"the": 0, "cat": 1, "sat": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    assert "tokenizer" in messages(opened(model=str(folder), text="the dog"))


@pytest.mark.parametrize("page", ["ablation", "generation", "padding"])
def test_a_page_that_a_model_is_nothing_for_says_what_to_choose_and_keeps_it_in_its_link(
    folders: dict[str, str], page: str
) -> None:
    name = folders["t5" if page == "padding" else "bert"]
    app = AppTest.from_file(APP, default_timeout=120)
    app.switch_page(f"pages/{page}.py")
    app.run()
    app.selectbox(key="model").set_value("another").run()
    app.text_input(key="other").set_value(name)
    healthy(app.run())
    assert app.markdown[0].value == f"### {page.title()}"
    assert "Choose" in messages(app)
    assert app.query_params["model"] == name


def test_an_address_of_the_hub_is_what_follows_its_name(folders: dict[str, str]) -> None:
    app = opened(model=f"https://huggingface.co/{folders['bert']}", text=TEXT)  # a folder: a test has no hub
    assert not app.error
    assert app.query_params["model"] == folders["bert"]


def test_a_page_that_reads_no_chat_messages_says_so_where_others_do(tmp_path: Path) -> None:
    folder = save("llama", tmp_path / "llama")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    for chat in ("true", "false"):
        app = opened(model=str(folder), text="user: the cat sat\nassistant: on a mat", chat=chat)
        assert NOTE not in [one.value for one in app.caption]
        for page in ("padding", "circuits", "head_atlas"):
            captions = [one.value for one in healthy(app.switch_page(f"pages/{page}.py").run()).caption]
            assert (NOTE in captions) == (chat == "true"), page
