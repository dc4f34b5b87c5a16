"""Tests that messages of jobs, loads and long jobs are in their user's language, from whichever thread or process."""

import pickle
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest

from i18n import LANGUAGES, msg, spoken, translated
from model.base import Model
from serving.background import Background
from serving.job import Job
from serving.loaded_models import Loads, Report
from serving.result_cache import Engine
from serving.scheduler import FairQueue, InThisProcess, Scheduler, TooSlow, WorkerLost
from serving.worker_process import WorkerProcess
from tests.serving import jobs

NOTHING = {"en": "expected a text, got none", "zh": "需要一段文本，现在没有"}
TWICE = {"en": "The worker process ended twice", "zh": "两次中途退出"}
SLOW = {"en": "This took longer than the limit of 0.1 seconds", "zh": "运行超过了 0.1 秒"}
STOPPED = {"en": "This server is being stopped", "zh": "本服务器正在关闭"}
WAIT = 60  # seconds


class Hand(InThisProcess):
    """A worker that calls the function of a test instead of computing the job."""

    def __init__(self, do: Callable[[], Any]) -> None:
        super().__init__(Engine(1, 10**6))
        self._do = do

    def do(self, job: Job, seconds: float) -> Any:
        return self._do()


def new_queue() -> FairQueue:
    return FairQueue(1, max_waiting=9, max_waiting_per_user=9)


def home_of(worker: Any, seconds: float = 60.0) -> Scheduler:
    return Scheduler([worker], new_queue(), seconds=seconds, affinity=False)


def lost() -> None:
    raise WorkerLost


def too_slow() -> None:
    raise TooSlow.after(0.1)


@pytest.fixture(params=["process", "worker"])
def home(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    worker = InThisProcess(Engine(1, 10**6)) if request.param == "process" else WorkerProcess(1, 10**6)
    found = home_of(worker)
    yield found
    found.close()


def translations(error: BaseException | str) -> dict[str, str]:
    """Return the message in each language."""
    found = {}
    for name in LANGUAGES:
        with spoken(name):
            found[name] = translated(error)
    return found


def assert_translated(error: BaseException | str, messages: dict[str, str]) -> None:
    found = translations(error)
    assert all(messages[name] in found[name] for name in LANGUAGES), found


def test_a_job_s_error(home: Scheduler) -> None:
    with spoken("zh"), pytest.raises(ValueError, match=NOTHING["en"]) as error:
        home.ask(Job(jobs.refuse_said))
    assert_translated(error.value, NOTHING)


@pytest.mark.parametrize(("does", "messages"), [(lost, TWICE), (too_slow, SLOW)])
def test_a_hand_s_own_trouble(does: Callable[[], Any], messages: dict[str, str]) -> None:
    home = home_of(Hand(does))
    with pytest.raises(ValueError, match=messages["en"]) as error:
        home.ask(Job(jobs.process))
    assert_translated(error.value, messages)
    assert_translated(pickle.loads(pickle.dumps(error.value)), messages)  # noqa: S301 - pickled here
    home.close()


def test_who_waits_in_a_queue_that_is_closed() -> None:
    queue = new_queue()
    ticket = queue.enter(Job(jobs.process), "reader")
    queue.close()
    assert_translated(ticket.answer.exception(WAIT) or "", STOPPED)


def test_readers_of_all_languages_wait_for_the_same_load() -> None:
    loads, waits, messages = Loads(), {name: Event() for name in LANGUAGES}, {}
    begun: list[int] = []

    def make(report: Report) -> Model:
        begun.append(1)
        assert all(one.wait(WAIT) for one in waits.values())
        raise ValueError(msg("expected a text, got none"))

    def wait(name: str) -> None:
        with spoken(name), pytest.raises(ValueError, match=NOTHING["en"]) as error:
            loads.get("model", make, lambda _: waits[name].set())
        messages[name] = translations(error.value)[name]

    readers = [Thread(target=wait, args=(name,)) for name in LANGUAGES]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(WAIT)
    assert messages == NOTHING
    assert begun == [1]


def test_a_long_job_s_error_and_its_end() -> None:
    job = Background(jobs.refuse_said_later)
    with pytest.raises(ValueError, match=NOTHING["en"]) as error:
        job.finish(lambda now: None)
    assert translations(error.value) == translations(job.poll().why) == NOTHING
    left = Background(jobs.count, 10_000, pause=0.01, unwatched_seconds=0.0)
    while not (now := left._progress).over:  # `poll` would register a visit and keep the job running
        left._process.wait(WAIT)
    assert (now.state, translations(now.why)["zh"]) == ("stopped", "已停止，因为没有人在看。")
