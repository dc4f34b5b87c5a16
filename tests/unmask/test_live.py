"""Tests of live widgets in a notebook: their traits, and a head that follows what is drawn on its mask."""

import sys

import numpy as np
import pytest

from unmask.notebook import LoadedModel

TEXT = "Once upon a time there was a little cat. The little cat"


def test_a_live_widget(story: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    run = story.run(TEXT)
    overview, head = run.heads().widget(), run.head(4, 0).widget()
    assert overview.packet == run.heads().canvas().packet
    assert (overview.pick, head.query) == (None, None)
    queries: list[object] = []
    head.observe(lambda change: queries.append(change.new), "query")
    head.query = 3  # as the browser sets it
    assert queries == [3]
    assert "export default { render }" in head._esm
    assert "style" not in head.keys  # ipywidgets would read it as a model of its own, and fail
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ImportError, match=r"pip install anywidget"):
        run.tokens(4, 0).widget()


def test_a_live_head_follows_what_is_drawn(story: LoadedModel) -> None:
    run = story.run(TEXT)
    live = run.live(4, 0)
    live.mask.drawn = {"number": 1, "epoch": 0, "strokes": [["block", 5, 0, 9, 0]]}  # as the browser sets it
    drawn = story.run(TEXT, masks={"drawn": [["block", 5, 0, 9, 0]]})
    np.testing.assert_array_equal(live.run.numpy(), drawn.numpy())
    assert live.head.packet == drawn.head(4, 0).canvas().packet != run.head(4, 0).canvas().packet
    live.head.query = 2  # as a click sets it
    live.mask.drawn = {"number": 2, "epoch": 0, "strokes": []}
    assert live.head.query is None
    assert live.head.packet == run.head(4, 0).canvas().packet


@pytest.mark.parametrize("scope", [{"layers": [2]}, {"layers": [4], "heads": [1]}])
def test_a_head_that_a_drawing_would_not_reach_is_refused(story: LoadedModel, scope: dict) -> None:
    run = story.run(TEXT, masks={"sliding": 3, **scope})
    with pytest.raises(ValueError, match="a head that this run's masks apply to, got L4 H0"):
        run.live(4, 0)
    assert run.live(scope["layers"][0], 1).run is run
