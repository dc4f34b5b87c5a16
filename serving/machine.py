"""What this process may use of its machine: cores and memory, as affinity, control groups and `ulimit` allow."""

import ctypes
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil
import torch

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

CGROUP = Path("/sys/fs/cgroup")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


@cache
def cores() -> int:
    """How many cores this process may use, at least 1: its affinity, and its control group's share of time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period):
        allowed = min(allowed, -(-int(quota) // int(period)))
    return max(allowed, 1)


@cache
def memory_bytes() -> int:
    """The memory this process may ever have: its control group's limit, its own (`ulimit -d`), or the machine's."""
    limits = [psutil.virtual_memory().total]
    limits += [int(text) for text in (_read("memory.max"), _read("memory/memory.limit_in_bytes")) if text.isdecimal()]
    return min(limits + _of_data())


def free_bytes() -> int:
    """The memory that is free for it now, within the same limits."""
    free = psutil.virtual_memory().available
    limit, used = _read("memory.max"), _read("memory.current")
    room = [max(int(limit) - int(used), 0)] if limit.isdecimal() and used.isdecimal() else []
    return min([free, *room, *(max(most - psutil.Process().memory_info().data, 0) for most in _of_data())])


def allow_many_files() -> None:
    """As many open at once as this process may ask for: each reader of a server takes four, and shells allow 1,024."""
    if resource:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def limit_memory(process: int, most: int) -> None:
    """The most that another process may take for itself; does nothing where the system has no such limit."""
    if resource and hasattr(resource, "prlimit"):
        _, own = resource.prlimit(process, resource.RLIMIT_DATA)
        resource.prlimit(process, resource.RLIMIT_DATA, (most if own < 0 else min(most, own), own))


def keep_freed_memory() -> None:
    """Memory that is freed stays this process's for what is asked for next, up to 64 MB at the end of a heap: given
    back at once, as glibc does, every page of it has to be found and emptied anew. Other C libraries do as they do.
    """
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)  # the most that it takes
        library.mallopt(M_TRIM_THRESHOLD, 64 * 2**20)


def keep_ray_on_loopback() -> None:
    """Call before Ray is imported, where it starts a cluster of its own: its processes then listen at 127.0.0.1 and at
    no other address, as they do on Windows and macOS. A cluster that is there already is the operator's; and
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1 lets other machines join.
    """
    if "RAY_ADDRESS" not in os.environ:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _of_data() -> list[int]:
    """The limit on what it takes for itself, files' pages and libraries aside; none where there is none. The hard one:
    limit_memory sets the other, for a process that judges what there is room for elsewhere."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[1] if resource else -1
    return [most] if most >= 0 else []


def _read(name: str) -> str:
    try:
        return (CGROUP / name).read_text().strip()
    except OSError:
        return ""


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
