"""Tests of the result cache: bounded in bytes, and a result that two threads request at once is computed once."""

from dataclasses import dataclass
from threading import Barrier, Event, Thread

import pytest

from serving.result_cache import ResultCache


@dataclass(frozen=True)
class Result:
    name: str
    size: int = 10

    def nbytes(self) -> int:
        return self.size


def test_the_longest_unused_leaves_first_and_what_is_too_large_is_not_kept() -> None:
    made: list[str] = []

    def get(name: str, size: int = 10) -> Result:
        def make() -> Result:
            made.append(name)
            return Result(name, size)

        return cache.get(name, make)

    cache = ResultCache(23)
    for name in ("a", "b", "a", "c", "a", "b"):
        assert get(name).name == name
    assert made == ["a", "b", "c", "b"]
    assert cache.nbytes() == 20
    assert get("large", 29).size == get("large", 29).size == 29
    assert made[-2:] == ["large", "large"]


def test_two_who_ask_at_once_get_what_was_made_once() -> None:
    cache, started, go_on, made = ResultCache(100), Event(), Event(), []

    def make() -> Result:
        made.append(1)
        started.set()
        assert go_on.wait(10)
        return Result("x")

    got: list[Result] = []
    threads = [Thread(target=lambda: got.append(cache.get("x", make))) for _ in range(3)]
    threads[0].start()
    assert started.wait(10)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(made) == 1
    assert got[0] is got[1] is got[2]


def test_who_waited_gets_the_failure_too_and_the_next_tries_again() -> None:
    cache, both = ResultCache(100), Barrier(2, timeout=10)

    def fail() -> Result:
        both.wait()
        raise ValueError("no such thing")

    def ask() -> None:
        with pytest.raises(ValueError, match="no such thing"):
            cache.get("x", fail)

    thread = Thread(target=ask)
    thread.start()
    both.wait()
    thread.join(10)
    assert cache.get("x", lambda: Result("x")).name == "x"


def test_a_maker_who_left_leaves_the_making_to_who_waits() -> None:
    class Left(BaseException):
        """Stand-in for the exception by which Streamlit ends a script when the user has clicked something else."""

    cache, started, go_on = ResultCache(100), Event(), Event()

    def leave() -> Result:
        started.set()
        assert go_on.wait(10)
        raise Left

    got: list[Result] = []

    def ask() -> None:
        with pytest.raises(Left):
            cache.get("x", leave)

    maker = Thread(target=ask)
    waiter = Thread(target=lambda: got.append(cache.get("x", lambda: Result("second"))))
    maker.start()
    assert started.wait(10)
    waiter.start()
    go_on.set()
    maker.join(10)
    waiter.join(10)
    assert [result.name for result in got] == ["second"]


def test_what_is_forgotten_is_made_again() -> None:
    cache = ResultCache(100)
    for name in ("a", "b"):
        cache.get(name, lambda name=name: Result(name))
    cache.forget(lambda key: key == "a")
    assert cache.get("a", lambda: Result("new")).name == "new"
    assert cache.get("b", lambda: Result("new")).name == "b"
