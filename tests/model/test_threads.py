"""A small module is checked by one thread, and everybody else keeps theirs."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch._inductor.utils import parallel_num_threads

from mask_check.check import check
from mask_check.sample_networks import SmallDecoder, SmallOutput
from serving import machine

MANY = 3


class Counts(SmallDecoder):
    """Notes how many threads each forward may use."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: set[int] = set()  # added to in place: a check puts back every attribute that a forward sets

    def forward(self, input_ids: Tensor, **more) -> SmallOutput:  # type: ignore[override]
        self.counted.add(torch.get_num_threads())
        return super().forward(input_ids)


@pytest.fixture
def elsewhere() -> Iterator[Callable]:
    """Runs a call in a thread of its own, in a process whose threads begin with MANY."""

    def run(call: Callable):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(call).result()

    own = torch.get_num_threads()
    run(lambda: torch.set_num_threads(MANY))
    yield run
    torch.set_num_threads(own)


def test_the_calling_thread_alone_and_only_for_a_while(elsewhere: Callable) -> None:
    def counts() -> list[int]:
        before = torch.get_num_threads()
        with machine.one_thread():
            inside, beside = torch.get_num_threads(), elsewhere(torch.get_num_threads)
        return [before, inside, beside, torch.get_num_threads(), elsewhere(torch.get_num_threads)]

    assert elsewhere(counts) == [MANY, 1, MANY, MANY, MANY]


def test_many_at_once_leave_what_they_found(elsewhere: Callable) -> None:
    together = threading.Barrier(8)

    def use(_: int) -> int:
        torch.get_num_threads()
        together.wait()
        with machine.one_thread():
            together.wait()
            return torch.get_num_threads()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, range(8))) == [1] * 8
    assert elsewhere(torch.get_num_threads) == MANY


def test_what_is_compiled_meanwhile_has_memory_for_all(elsewhere: Callable) -> None:
    """Else FlexAttention, which runs with all threads, writes beyond its memory."""

    def counts() -> list[int]:
        with machine.one_thread():
            inside = parallel_num_threads()
        return [inside, parallel_num_threads()]

    assert elsewhere(counts) == [MANY, MANY]


def test_a_check_of_a_small_module(elsewhere: Callable) -> None:
    module = Counts()
    assert elsewhere(lambda: check(module, length=5) and torch.get_num_threads()) == MANY
    assert module.counted == {1}


def test_a_large_one_has_all(elsewhere: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SMALL_MODEL_PARAMETERS", 1)
    module = Counts()
    elsewhere(lambda: check(module, length=5))
    assert module.counted == {MANY}
