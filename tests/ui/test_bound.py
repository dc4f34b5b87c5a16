"""Widgets of choices that the page also sets. For a browser that lags behind: tests/browser/test_slow_line.py."""

import pytest
from streamlit.testing.v1 import AppTest


def page() -> None:
    import streamlit as st

    from ui.widgets import bound

    state = st.session_state
    state.setdefault("choice", 2)
    state.setdefault("taken", [])
    st.button("Page", key="page", on_click=lambda: state.update(choice=7))
    st.selectbox("Choice", range(11), **bound("choice", state.choice))
    st.multiselect("Several", range(5), **bound("several", [state.choice % 5], state.taken.append))


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_function(page).run()


def test_it_shows_what_the_page_sets_under_another_key(app: AppTest) -> None:
    value, key = app.selectbox[0].value, app.selectbox[0].key
    app.button(key="page").click().run()
    assert (value, app.selectbox[0].value) == (2, 7)
    assert app.selectbox[0].key != key


def test_what_the_reader_takes_is_the_choice_and_the_key_stays(app: AppTest) -> None:
    (before,) = app.selectbox
    before.set_value(9).run()
    assert (app.session_state["choice"], app.selectbox[0].value, app.selectbox[0].key) == (9, 9, before.key)
    app.button(key="page").click().run()
    app.selectbox[0].set_value(3).run()
    assert (app.session_state["choice"], app.selectbox[0].value) == (3, 3)


def test_where_it_goes_elsewhere_it_is_told(app: AppTest) -> None:
    app.multiselect[0].set_value([2, 4]).run()
    assert app.session_state["taken"] == [[2, 4]]
    assert app.multiselect[0].value == [2], "the page shows what it makes of it"
