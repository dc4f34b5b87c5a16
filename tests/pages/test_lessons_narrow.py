"""A lesson in a window as narrow as a phone's."""

import pytest

from tests.pages.test_lessons import Lessons


def test_two_pictures_below_each_other_have_one_scale_of_colours_the_one_that_is_said() -> None:
    page = Lessons(lesson="causal_mask", step="2")
    page.app.session_state.lesson_width = 390
    page.press("reveal")
    ends = [page.trace(key, "weights")["zmax"] for key in ("lesson_figure", "lesson_figure_1")]
    (said,) = [one for one in page.html() if 'class="key"' in one]
    assert ends[0] == pytest.approx(ends[1])
    assert f"{ends[0]:.2f}" in said
