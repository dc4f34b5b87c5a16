"""Training on the page Why causal ("Train it yourself"): one and two trainings, pause and stop, what is refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
import pytest

from serving import background, training_job
from serving.training_job import Training
from tests.apptest import charts
from tests.pages.page import array
from tests.pages.why_causal import WhyCausal, visit_that_ends
from ui import results
from ui.why_causal import live_training
from viz.why_causal.charts import nats

pytestmark = pytest.mark.slow  # trains


@pytest.fixture
def page() -> Iterator[WhyCausal]:
    yield from visit_that_ends()


def test_a_training_from_start_to_end_and_a_second_one_beside_it(
    page: WhyCausal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few steps; what is learned in 150 is tested in tests/model/why_causal/test_live.py."""
    monkeypatch.setattr(live_training, "Training", lambda text, **more: Training(text, **more | {"steps": 20}))
    page.set(live_steps=200).press("live_start")
    assert page.app.button(key="live_start").disabled
    assert not page.app.button(key="live_stop").disabled
    progress = page.until_over()
    page.run()
    assert progress.state == "done", progress.why
    (trace,) = page.figures()["live_figure"]["data"]
    np.testing.assert_allclose(array(trace["y"]), progress.losses, rtol=1e-5)
    assert not page.app.button(key="live_start").disabled
    sentence = " ".join(one.value for one in page.app.markdown)
    assert f"run with the mask: **{nats(progress.with_mask)}** nats" in sentence
    assert f"run without: **{nats(progress.without_mask)}**" in sentence
    assert progress.texts[-1][1].replace("\n", "⏎") in [one.value for one in page.app.code]

    page.set(live_causal=True).press("live_start")
    page.until_over()
    page.run()
    names = [trace["name"] for trace in page.figures()["live_figure"]["data"]]
    assert names == ["1: without the mask", "2: with the mask"]
    sentence = " ".join(one.value for one in page.app.markdown)
    assert "all copy scores are exactly 0" in sentence
    page.press("live_clear")
    assert "live_figure" not in page.figures()


def test_a_link_to_fewer_steps_than_are_offered_opens_at_the_first_choice(page: WhyCausal) -> None:
    """100 steps used to be offered, but left both losses alike."""
    old = WhyCausal(step="5", live_steps="100")
    assert old["live_steps"] == page["live_steps"] == 300
    assert old.widget("live_steps").options[0] == "200"


def test_a_text_too_short_to_train_on_is_a_sentence(page: WhyCausal) -> None:
    page.set(live_text="too short")
    page.press("live_start")
    assert page.boxes("error") == ["Training needs a text of at least 200 characters; this one has 9."]
    assert page["live_training"] is None
    page.set(live_text="the cat sat on the mat. " * 20)
    assert not page.app.error


def test_of_a_text_beyond_the_limit_it_is_said_what_is_left_out(page: WhyCausal) -> None:
    page.set(live_text="x" * (training_job.MAX_CHARACTERS + 1234))
    assert any("first 40,000 characters; the other 1,234 are left out" in one.value for one in page.app.caption)


def test_a_training_whose_process_is_killed_is_a_sentence(page: WhyCausal) -> None:
    page.press("live_start")
    page["live_training"]._process.kill()
    assert page.until_over().state == "failed"
    page.run()
    assert any("stopped before it was finished. Start it again." in one.value for one in page.app.markdown)
    assert not page.app.button(key="live_start").disabled


class Done:
    """A finished training with a given copy score and given losses."""

    causal, total_steps = False, 100

    def __init__(self, copy: float, with_mask: float = 2.0, without_mask: float = 1.27) -> None:
        self.copy, self.with_mask, self.without_mask = copy, with_mask, without_mask

    def watch(self) -> training_job.TrainingProgress:
        copy = ((0.01, self.copy), (0.02, 0.03))
        return training_job.TrainingProgress(
            "done", (100,), (1.266,), (2.0,), (), with_mask=self.with_mask, without_mask=self.without_mask, copy=copy
        )

    def stop(self) -> None: ...


def test_where_no_head_copies_yet_it_is_said_and_more_steps_are_offered(page: WhyCausal) -> None:
    page.app.session_state["live_training"] = Done(0.07, with_mask=1.5)
    page.run()
    text = " ".join(one.value for one in page.app.markdown)
    assert "says little about the mask" in text
    assert "No head copies yet**: the best, L0 H1, puts 7.0% of its attention on the next character" in text
    page.set(live_steps=200).press("live_longer")
    assert page["live_steps"] == page["live_training"].total_steps == 300
    assert page["live_kept"][0][1].watch().losses == (1.266,)


def test_where_the_loss_depends_on_later_characters_it_is_said_without_a_copy_head(page: WhyCausal) -> None:
    page.app.session_state["live_training"] = Done(0.04, with_mask=1.9)  # less than twice the loss without the mask
    page.run()
    text = " ".join(one.value for one in page.app.markdown)
    assert "with the mask the loss is 0.63 nats higher: the model depends on attention that the mask blocks" in text
    assert "tell the answer" not in text, "which of them tell it was not measured"
    assert "says little" not in text


def test_where_a_head_copies_nothing_more_is_offered(page: WhyCausal) -> None:
    page.app.session_state["live_training"] = Done(0.88)
    page.run()
    text = " ".join(one.value for one in page.app.markdown)
    assert "Its best copy head, L0 H1, puts 88.0% of its attention on the next character" in text
    assert not [one for one in page.app.button if one.key == "live_longer"]


def test_a_loss_close_to_zero_is_not_written_as_zero(page: WhyCausal) -> None:
    training = Done(0.99, without_mask=0.0004)
    now = training.watch()
    training.watch = lambda: replace(now, steps=(50, 100), losses=(1.266, 0.0003))  # type: ignore[method-assign]
    page.app.session_state["live_training"] = training
    text = page.run().words()
    assert "run without: **under 0.001**" in text
    assert "loss under 0.001 nats/character" in text
    assert "from 1.27 to under 0.001" in charts(page.app)["live_figure"]["alt"]


def test_on_a_busy_server_a_training_waits_with_its_position(page: WhyCausal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "max_running", lambda: 0)
    page.press("live_start")
    assert not page.app.error
    assert any("In the queue: position 1, expected wait" in one.value for one in page.app.markdown)
    assert page.app.button(key="live_pause").disabled
    assert not page.app.button(key="live_stop").disabled
    page.press("live_stop")
    monkeypatch.setattr(background, "MAX_WAITING", 0)
    page.press("live_start")
    assert "The queue is full" in page.boxes("error")[0]


def test_two_readers_have_two_trainings(page: WhyCausal) -> None:
    page.press("live_start")
    other = WhyCausal(step="5")
    assert other["live_training"] is None
    assert "live_figure" not in other.figures()


def test_a_training_goes_on_while_another_step_is_looked_at_and_its_end_is_noticed(page: WhyCausal) -> None:
    page.set(live_steps=600).press("live_start").step(2)
    assert any(f"step {page['live_training'].watch().step} of 600" in one.value for one in page.app.caption)
    assert not page["live_training"].watch().over
    page["live_training"].stop()
    page.run()
    assert not any("of 600" in one.value for one in page.app.caption)
    page.step(5)
    assert any("Stopped." in one.value for one in page.app.markdown)
    assert not page.app.button(key="live_start").disabled


@pytest.mark.parametrize("here", [True, False])
def test_a_training_counts_as_watched_while_its_page_s_jobs_wait_in_the_queue(
    page: WhyCausal, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """While the page's script waits, Streamlit runs no fragment, and thus not the one that polls the training."""
    page.press("live_start")
    training, scheduler, seen = page["live_training"], results.scheduler(), []
    real = scheduler.ask

    def ask(job: Any, reader: str, raise_if_cancelled: Callable[[], None], **options: Any) -> Any:
        page_of_session = results.st.session_state.page
        results.st.session_state.page = page_of_session if here else "Explore"
        before = monotonic()
        raise_if_cancelled()
        seen.append(training._seen >= before)
        results.st.session_state.page = page_of_session
        return real(job, reader, raise_if_cancelled, **options)

    monkeypatch.setattr(scheduler, "ask", ask)
    page.type(f"The dog said to {'her' if here else 'his'} friend, and the cat ran.")  # not in any cache yet
    assert seen
    assert set(seen) == {here}
