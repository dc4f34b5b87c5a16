"""Choices of pages: they outlive pages, come from the link, and follow the browser's Back and Forward."""

from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from ui import controls


def page() -> None:
    from typing import Literal

    import streamlit as st
    from pydantic import Field

    from ui import widgets
    from ui.link import Link, Whole

    class Mine(Link):
        depth: Whole | None = None  # its default is set later, by the page
        side: Literal["left", "right"] = "left"
        mine_wide: bool = Field(False, alias="wide")
        text: str | None = None

    widgets.begin_page(st.session_state.get("which", "one"))
    widgets.restore("mine", lambda: Mine.read().model_dump())
    st.session_state.depth = 3 if st.session_state.depth is None else st.session_state.depth
    if st.session_state.get("which", "one") == "one":
        st.number_input("Depth", 0, 99, key="depth")
        if st.session_state.get("sides", True):
            st.radio("Side", ["left", "right"], key="side")
    st.button("Explain", key="explain")
    if st.session_state.get("ends", False):
        st.stop()
    Mine.of_choices(**({"depth": None} if st.session_state.depth == 3 else {})).write()


def opened(**query: str) -> AppTest:
    app = AppTest.from_function(page)
    app.query_params.update(query)
    return app.run()


def chosen(app: AppTest) -> tuple[int, str]:
    assert not app.exception
    return app.session_state["depth"], app.session_state["side"]


def test_the_link_brings_them_and_what_makes_no_sense_is_the_default() -> None:
    assert chosen(opened(depth="7", side="right")) == (7, "right")
    assert chosen(opened(depth="many", side="up")) == (3, "left")
    assert chosen(opened(depth="1e999")) == (3, "left")
    assert chosen(opened(wide="far", mine_wide="farther", depth="7")) == (7, "left")


def test_the_link_is_true_to_them_and_leaves_defaults_out() -> None:
    app = opened()
    assert app.query_params == {}
    app.number_input(key="depth").set_value(11).run()
    assert app.query_params == {"depth": "11"}


def test_they_outlive_a_page_and_a_part_that_does_not_draw_them() -> None:
    app = opened()
    app.number_input(key="depth").set_value(11).run()
    app.radio(key="side").set_value("right").run()
    app.session_state["sides"] = False
    app.run().run()
    assert chosen(app) == (11, "right")
    app.session_state["which"] = "two"
    app.run().run()
    app.session_state["which"] = "one"
    app.session_state["sides"] = True
    assert chosen(app.run()) == (11, "right")
    assert app.radio(key="side").value == "right"


def test_back_brings_the_choices_of_the_link_before() -> None:
    app = opened()
    app.number_input(key="depth").set_value(11).run()
    app.number_input(key="depth").set_value(13).run()
    app.query_params.clear()
    app.query_params["depth"] = "11"  # as the browser does on Back
    assert chosen(app.run()) == (11, "left")
    assert app.number_input(key="depth").value == 11
    app.query_params.clear()
    assert chosen(app.run()) == (3, "left")
    app.query_params["depth"] = "13"
    assert chosen(app.run()) == (13, "left")


def test_back_to_the_link_that_a_page_was_come_to_with_keeps_the_choices_brought_along() -> None:
    app = opened()
    app.number_input(key="depth").set_value(11).run()
    app.session_state["which"] = "two"
    app.query_params.clear()  # a sidebar's link holds no choices
    app.run()
    assert app.query_params == {"depth": "11"}
    app.query_params.clear()  # Back, to before the page wrote its link
    app.run()
    assert chosen(app) == (11, "left")
    assert app.query_params == {"depth": "11"}
    for depth in (3, 5):  # after a choice on this page, the empty link means the defaults
        app.session_state["depth"] = depth
        app.run()
    app.query_params.clear()
    assert chosen(app.run()) == (3, "left")


def test_a_run_again_of_a_page_that_has_written_no_link_yet_is_no_step_back() -> None:
    app = opened()
    app.number_input(key="depth").set_value(11).run()
    app.session_state["which"] = "two"
    app.session_state["ends"] = True  # as if a click ended the first run
    app.query_params.clear()
    app.run()
    assert chosen(app.run()) == (11, "left")


def test_a_page_come_back_to_before_the_other_wrote_a_link_was_not_opened_by_a_link() -> None:
    app = opened(text="The fox")
    assert app.session_state["linked"]
    app.session_state["which"] = "two"
    app.session_state["ends"] = True  # as if a click ended the run
    app.run()
    app.session_state["which"] = "one"
    assert not app.run().session_state["linked"], "its text would be read from the address, not as typed"


def test_a_choice_made_before_the_last_link_arrived_is_no_step_back() -> None:
    app = opened()
    app.number_input(key="depth").set_value(11).run()
    app.query_params.clear()  # the browser did not have depth=11 yet when the user chose again
    app.radio(key="side").set_value("right")
    assert chosen(app.run()) == (11, "right")


def test_a_click_before_the_last_link_arrived_is_no_step_back() -> None:
    app = opened()
    app.number_input(key="depth").set_value(11).run()
    app.query_params.clear()
    app.button(key="explain").click()
    assert chosen(app.run()) == (11, "left")
    app.query_params.clear()
    assert chosen(app.run()) == (3, "left")


def test_a_text_is_tokenized_after_its_side_of_padding_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    read = SimpleNamespace(rows=["a", "b"])
    monkeypatch.setattr(controls, "choose_pad_side", lambda text: done.append("pad side") or "left")
    monkeypatch.setattr(controls.run_view, "tokenize", lambda *_: done.append("tokenize") or read)
    monkeypatch.setattr(controls, "choose_row", lambda rows: 0)
    monkeypatch.setattr(controls.positions, "move_with_tokens", lambda *_: None)
    monkeypatch.setattr(controls.explain, "limits", lambda *_: [])
    monkeypatch.setattr(controls.explain, "title_of", lambda _: "story")
    controls.open_text(SimpleNamespace(kind="decoder", chats=False), "a\nb")  # type: ignore[arg-type]
    assert done == ["pad side", "tokenize"]
