"""What the Serving page stores between two runs, when a change comes before the page is drawn again."""

from streamlit.testing.v1 import AppTest

from model.masks import MaskSpec
from tests.pages.test_serving import Serving


def between_two_streams() -> None:
    import streamlit as st

    from ui import inference

    st.session_state.stream_now = None  # as the page leaves it if its run ends before the new stream has begun
    st.session_state.figures = inference._read_next_part(True)


def test_a_part_that_is_read_while_no_stream_has_begun_draws_nothing() -> None:
    app = AppTest.from_function(between_two_streams).run()
    assert not app.exception
    assert app.session_state.figures == {}


def test_changes_of_several_masks_that_come_together_are_all_kept() -> None:
    page = Serving(serving="cost").set(cost_causal=False, cost_sliding=5, cost_stride=3)
    expected = MaskSpec(causal=False, sliding=5, stride=3)
    assert MaskSpec.from_json(page["cost_masks"]) == expected
    assert MaskSpec.from_json(page.url["cost_masks"]) == expected
