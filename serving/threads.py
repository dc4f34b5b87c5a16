"""One thread for small models, without taking threads from anybody else in the process.

On tensors this small more threads only wait for each other: a check of one million parameters takes ten times as long
beside another busy process. torch.set_num_threads would change it for everybody who comes later: it sets the calling
thread's own number (OpenMP's) and what threads that are new to torch begin with. Here the latter is put back at once.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

FEW = 10_000_000  # parameters: below it one thread is as fast as several, or faster
_LOCK = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """What the calling thread computes in it is computed by it alone; other threads, old and new, keep theirs."""
    if not torch.backends.openmp.is_available():  # other pools cannot be resized once they run
        yield
        return
    own = torch.get_num_threads()
    _set_own(1)
    try:
        yield
    finally:
        _set_own(own)


def _set_own(count: int) -> None:
    """The calling thread's number. A thread that first uses torch in between, microseconds, may begin with it too."""
    with _LOCK, ThreadPoolExecutor(1) as another:
        begins_with = another.submit(torch.get_num_threads).result()
        torch.set_num_threads(count)
        another.submit(torch.set_num_threads, begins_with).result()
