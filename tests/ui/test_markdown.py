"""Notes on a page: none, one caption, or several in an expander."""

import pytest
from streamlit.testing.v1 import AppTest


def page() -> None:
    import streamlit as st

    from ui import widgets

    widgets.show_notes(st.session_state.sentences)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_one_line_at_the_most_stands_open(count: int) -> None:
    app = AppTest.from_function(page)
    app.session_state.sentences = [f"Sentence {number}." for number in range(count)]
    app.run()
    assert not app.exception
    assert [box.value for box in app.caption] == ([":material/info: Sentence 0."] if count == 1 else [])
    assert [box.label for box in app.expander] == ([f"{count} notes on what is shown"] if count > 1 else [])
    assert [box.value for box in app.markdown] == (["- Sentence 0.\n- Sentence 1.\n- Sentence 2."] if count > 1 else [])
