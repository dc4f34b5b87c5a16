"""Long jobs: their reports, their answer, a stop, a pause, a time, a reader who is gone, and kill -9.

python -m pytest tests/model/jobs/test_background.py
"""

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from model.jobs.background import Background, Busy, Watched, most_at_once
from tests.model.jobs import questions

PATIENCE = 60  # seconds


@pytest.fixture
def start() -> Iterator[Callable[..., Background]]:
    """Background(...), stopped at the end of the test."""
    started: list[Background] = []

    def one(*job: object, **options: object) -> Background:
        started.append(Background(*job, **options))  # type: ignore[arg-type]
        return started[-1]

    yield one
    for job in started:
        job.stop()


def until(job: Background, so: Callable[[Watched], bool]) -> Watched:
    end = time.monotonic() + PATIENCE
    while not so(found := job.watched()):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def test_reports_come_in_order_and_then_the_answer(start: Callable) -> None:
    found = until(start(questions.count, 5, word="cat"), lambda now: now.over)
    assert (found.state, found.answer) == ("done", "cat 5")
    assert found.reports == (0, 1, 2, 3, 4)


def test_it_runs_behind_everybody_else_with_one_thread(start: Callable) -> None:
    found = until(start(questions.circumstances), lambda now: now.over)
    assert found.answer == (10, "1")


def test_its_error_is_the_reader_s(start: Callable) -> None:
    with pytest.raises(ValueError, match="expected something else, got 7"):
        start(questions.refuse_later, 7).finish(lambda now: None)


def test_kill_9_is_a_sentence_and_what_it_told_stays(start: Callable) -> None:
    job = start(questions.count, 10_000, pause=0.01)
    until(job, lambda now: len(now.reports) > 3)
    os.kill(job._process.pid, signal.SIGKILL)
    found = until(job, lambda now: now.over)
    assert (found.state, found.why) == ("failed", "It ended before it was done. Start it again.")
    assert found.reports[:3] == (0, 1, 2)
    with pytest.raises(ValueError, match="ended before it was done"):
        job.finish(lambda now: None)


def test_it_stops_at_its_time(start: Callable) -> None:
    found = until(start(questions.count, 10_000, pause=0.01, most_seconds=0.5), lambda now: now.over)
    assert found.state == "stopped"
    assert "the most that it may take" in found.why


def test_who_leaves_in_the_middle_ends_it(start: Callable) -> None:
    class ElsewhereNow(BaseException):
        """As streamlit's own."""

    def look(now: Watched) -> None:
        if now.reports:
            raise ElsewhereNow

    job = start(questions.count, 10_000, pause=0.01)
    with pytest.raises(ElsewhereNow):
        job.finish(look)
    assert not job.is_alive()


def test_room_is_bounded_and_comes_back(start: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_BACKGROUND_JOBS", "1")
    assert most_at_once() == 1
    first = start(questions.count, 10_000, pause=0.01)
    with pytest.raises(Busy, match=r"^1 trainings and checks run here already, as many as"):
        start(questions.count, 5)
    first.stop()
    start(questions.count, 5)
