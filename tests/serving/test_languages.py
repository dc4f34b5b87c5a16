"""What jobs, loads and long jobs say is in the language of who asked, whichever thread or process says it."""

from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest

from i18n import LANGUAGES, say, spoken
from model.base import Model
from serving.background import Background
from serving.fair_queue import FairQueue, QueueFull
from serving.job import Job
from serving.loaded_models import Loads, Report
from serving.result_cache import Engine
from serving.scheduler import InThisProcess, Scheduler, TooSlow, WorkerLost
from serving.worker_process import WorkerProcess
from tests.serving import jobs

NOTHING = {"en": "expected a text, got none", "zh": "需要一段文本，现在没有"}
TWICE = {"en": "The worker process ended twice", "zh": "两次中途退出"}
SLOW = {"en": "This took longer than the limit of 0.1 seconds", "zh": "运行超过了 0.1 秒"}
STOPPED = {"en": "This server is being stopped", "zh": "本服务器正在关闭"}
WAIT = 60  # seconds


class Hand(InThisProcess):
    """One that does what the test says instead of a job."""

    def __init__(self, do: Callable[[], Any]) -> None:
        super().__init__(Engine(1, 10**6))
        self._do = do

    def do(self, job: Job, seconds: float) -> Any:
        return self._do()


def new_queue() -> FairQueue:
    return FairQueue(1, most_waiting=9, most_a_reader=9)


def home_of(worker: Any, seconds: float = 60.0) -> Scheduler:
    return Scheduler([worker], new_queue(), seconds=seconds, affinity=False)


def lost() -> None:
    raise WorkerLost


def too_slow() -> None:
    raise TooSlow(0.1)


@pytest.fixture(params=["process", "worker"])
def home(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    worker = InThisProcess(Engine(1, 10**6)) if request.param == "process" else WorkerProcess(1, 10**6)
    found = home_of(worker)
    yield found
    found.close()


def test_a_job_s_error(home: Scheduler) -> None:
    for name in LANGUAGES:
        with spoken(name), pytest.raises(ValueError, match=NOTHING[name]):
            home.ask(Job(jobs.refuse_said))


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize(("does", "words"), [(lost, TWICE), (too_slow, SLOW)])
def test_a_hand_s_own_trouble(name: str, does: Callable[[], Any], words: dict[str, str]) -> None:
    home = home_of(Hand(does))
    with spoken(name), pytest.raises(ValueError, match=words[name]):
        home.ask(Job(jobs.process))
    home.close()


def test_each_who_waits_in_a_queue_that_is_closed() -> None:
    queue, tickets = new_queue(), {}
    for name in LANGUAGES:
        with spoken(name):
            tickets[name] = queue.enter(Job(jobs.process), name)
    queue.close()
    for name, ticket in tickets.items():
        with pytest.raises(QueueFull, match=STOPPED[name]):
            ticket.answer.result(WAIT)


def test_two_readers_of_one_load_are_each_told_in_their_own_language() -> None:
    loads, waits, said = Loads(), {name: Event() for name in LANGUAGES}, {}

    def make(report: Report) -> Model:
        assert all(one.wait(WAIT) for one in waits.values())
        raise ValueError(say("expected a text, got none"))

    def wait(name: str) -> None:
        with spoken(name):
            try:
                loads.get("model", make, lambda _: waits[name].set())
            except ValueError as error:
                said[name] = str(error)

    readers = [Thread(target=wait, args=(name,)) for name in LANGUAGES]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(WAIT)
    assert said == NOTHING


def test_a_long_job_s_error_and_its_end() -> None:
    with spoken("zh"):
        job = Background(jobs.refuse_said_later)
        with pytest.raises(ValueError, match=NOTHING["zh"]):
            job.finish(lambda now: None)
        left = Background(jobs.count, 10_000, pause=0.01, left_seconds=0.0)
    while not (now := left._so_far).over:  # `watched` would tell it that somebody is there
        left._process.wait(WAIT)
    assert (now.state, now.why) == ("stopped", "已停止，因为没有人在看。")
