"""Tests of long jobs: reports, result, stop, pause, time limit, a user who has left, and kill -9."""

import errno
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from serving import background
from serving.background import ENDED, Background, JobProgress, TooManyBackgroundJobs, max_running
from tests.serving import jobs

PATIENCE = 300  # seconds; background jobs have the lowest priority on a busy machine


@pytest.fixture
def start() -> Iterator[Callable[..., Background]]:
    """Return a function that starts Background(...); its jobs are stopped at the end of the test."""
    started: list[Background] = []

    def one(*job: object, **options: object) -> Background:
        started.append(Background(*job, **options))  # type: ignore[arg-type]
        return started[-1]

    yield one
    for job in started:
        job.stop()
    for thread in threading.enumerate():  # the durations that they record must not reach the next test
        if "(_listen)" in thread.name:
            thread.join(PATIENCE)


def until(job: Background, so: Callable[[JobProgress], bool]) -> JobProgress:
    end = time.monotonic() + PATIENCE
    while not so(found := job.poll()):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def test_reports_come_in_order_and_then_the_answer(start: Callable) -> None:
    found = until(start(jobs.count, 5, word="cat"), lambda now: now.over)
    assert (found.state, found.answer) == ("done", "cat 5")
    assert found.reports == (0, 1, 2, 3, 4)


def test_it_runs_behind_everybody_else_with_one_thread(start: Callable) -> None:
    found = until(start(jobs.circumstances), lambda now: now.over)
    assert found.answer == (10, "1")


def test_its_error_is_the_reader_s(start: Callable) -> None:
    with pytest.raises(ValueError, match="expected something else, got 7"):
        start(jobs.refuse_later, 7).finish(lambda now: None)


@pytest.mark.parametrize(("reported", "why"), [(False, "Unreadable in unreadable_later"), (True, ENDED)])
def test_what_cannot_be_read_ends_it(start: Callable, reported: bool, why: str) -> None:
    job = start(jobs.unreadable_later, reported)
    found = until(job, lambda now: now.over)
    assert (found.state, found.why) == ("failed", why)
    job._process.wait(PATIENCE)


def test_an_error_without_words_has_a_sentence(start: Callable) -> None:
    found = until(start(jobs.no_memory_later), lambda now: now.over)
    assert (type(found.error), found.why) == (MemoryError, ENDED)


def test_a_process_that_cannot_be_started_is_a_sentence(start: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """This applies to a queued job when its turn comes and to a job that starts at once."""

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(background, "_running", [])
    monkeypatch.setattr(background, "_waiting", [])
    monkeypatch.setattr(background, "max_running", lambda: 0)
    queued = start(jobs.count, 5)
    assert queued.poll().state == "waiting"
    monkeypatch.setattr(background.machine, "start_python", no_room)
    monkeypatch.setattr(background, "max_running", lambda: 1)
    for job in queued, None:
        found = until(job or start(jobs.count, 5), lambda now: now.over)
        assert (found.state, found.why) == ("failed", ENDED)
    monkeypatch.undo()
    assert until(start(jobs.count, 5), lambda now: now.over).answer == " 5"


def test_kill_9_is_a_sentence_and_what_it_told_stays(start: Callable) -> None:
    job = start(jobs.count, 10_000, pause=0.01)
    until(job, lambda now: len(now.reports) > 3)
    os.kill(job._process.pid, signal.SIGKILL)
    found = until(job, lambda now: now.over)
    assert (found.state, found.why) == ("failed", "It stopped before it was finished. Start it again.")
    assert found.reports[:3] == (0, 1, 2)
    with pytest.raises(ValueError, match="stopped before it was finished"):
        job.finish(lambda now: None)


def test_it_stops_at_its_time(start: Callable) -> None:
    found = until(start(jobs.count, 10_000, pause=0.01, max_seconds=0.5), lambda now: now.over)
    assert found.state == "stopped"
    assert "the time limit" in found.why


def test_who_leaves_in_the_middle_ends_it(start: Callable) -> None:
    class ElsewhereNow(BaseException):
        """Stand-in for the exception by which Streamlit ends a script."""

    def look(now: JobProgress) -> None:
        if now.reports:
            raise ElsewhereNow

    job = start(jobs.count, 10_000, pause=0.01)
    with pytest.raises(ElsewhereNow):
        job.finish(look)
    assert not job.is_alive()


def test_more_than_may_run_wait_in_a_queue(start: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_BACKGROUND_JOBS", "1")
    monkeypatch.setattr(background, "MAX_WAITING", 2)
    monkeypatch.setattr(background, "_running", [])  # so that no job of an earlier test ends here
    monkeypatch.setattr(background, "_durations", deque([20.0, 40.0]))
    assert max_running() == 1
    running, *queued = start(jobs.count, 10_000, pause=0.01), *(start(jobs.count, 5) for _ in range(2))
    for position, (job, lowest, highest) in enumerate(zip(queued, (20, 50), (30, 60), strict=True), 1):
        now = job.poll()
        assert now.state == "waiting"
        wait = re.fullmatch(r"In the queue: position (\d), expected wait (\d+) seconds\.", now.why)
        assert wait, now.why
        assert int(wait[1]) == position
        assert lowest <= int(wait[2]) <= highest
    running.pause()
    assert queued[0].poll().why.endswith("expected wait at most 5 minutes.")
    running.resume()
    running._began -= 100  # it runs longer than the last jobs did
    assert queued[0].poll().why.endswith("expected wait at most 3 minutes.")
    with pytest.raises(TooManyBackgroundJobs, match=r"^The queue is full: 2 trainings and checks are waiting"):
        start(jobs.count, 5)
    queued[0].stop()
    assert queued[1].poll().why.startswith("In the queue: position 1")
    running.stop()
    assert queued[0].poll().state == "stopped"
    assert until(queued[1], lambda now: now.over).answer == " 5"
    assert until(start(jobs.count, 5), lambda now: now.over).answer == " 5"  # the queue is empty again
    assert max(background._durations) == 40, "a job that was stopped says nothing of how long one takes"


def test_the_time_until_the_next_job_is_none_that_a_job_took(start: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_running", [])
    monkeypatch.setattr(background, "_durations", deque())
    first = start(jobs.count, 5)
    until(first, lambda now: now.over and not first.is_alive() and len(background._durations) == 1)
    first._began -= 1000  # 1,000 s ago, and no job since
    until(start(jobs.count, 5), lambda now: now.over)
    assert max(background._durations) < 1000


def test_who_leaves_the_queue_makes_room_in_it(start: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_BACKGROUND_JOBS", "1")
    start(jobs.count, 10_000, pause=0.01)
    left, stays = start(jobs.count, 5, unwatched_seconds=0.5), start(jobs.count, 5)
    now = until(stays, lambda now: "position 1" in now.why)
    assert now.state == "waiting"
    assert "no one was watching" in left.poll().why
