"""The stream of the Serving page, of which a part is read on every run of a fragment, which reruns by itself."""

from streamlit.testing.v1 import AppTest


def between_two_streams() -> None:
    import streamlit as st

    from ui import inference

    st.session_state.stream_now = None  # as the page leaves it if its run ends before the new stream has begun
    st.session_state.figures = inference._read_next_part(True)


def test_a_part_that_is_read_while_no_stream_has_begun_draws_nothing() -> None:
    app = AppTest.from_function(between_two_streams).run()
    assert not app.exception
    assert app.session_state.figures == {}
