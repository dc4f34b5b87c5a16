"""Resources of this process: cores and memory, within affinity, control groups and `ulimit`; and its subprocesses."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import FrameType

import psutil
import torch

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

ROOT = Path(__file__).parents[1]
CGROUP = Path("/sys/fs/cgroup")
SMALL_MODEL_PARAMETERS = 10_000_000  # parameters; for smaller models, one thread is at least as fast as several
_LOCK = threading.Lock()
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


@cache
def cores() -> int:
    """Return how many cores this process may use, at least 1, given its affinity and its control group's CPU quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period):
        allowed = min(allowed, -(-int(quota) // int(period)))
    return max(allowed, 1)


@cache
def memory_bytes() -> int:
    """Return the memory that this process may have: its control group's, its own (`ulimit -d`) or the machine's."""
    limits = [psutil.virtual_memory().total]
    limits += [int(text) for text in (_read("memory.max"), _read("memory/memory.limit_in_bytes")) if text.isdecimal()]
    return min(limits + _of_data())


def free_bytes() -> int:
    """Return the memory that is free now, within the limits of `memory_bytes`."""
    free = psutil.virtual_memory().available
    limit, used = _read("memory.max"), _read("memory.current")
    room = [max(int(limit) - int(used), 0)] if limit.isdecimal() and used.isdecimal() else []
    return min([free, *room, *(max(most - psutil.Process().memory_info().data, 0) for most in _of_data())])


def on_termination(callback: Callable[[], object]) -> None:
    """Call `callback` on Ctrl-C and SIGTERM, before the handlers installed so far. To be called in the main thread."""
    for number in (signal.SIGINT, signal.SIGTERM):
        then = signal.getsignal(number)
        if callable(then):
            signal.signal(number, partial(_first, callback, then))


def _first(callback: Callable[[], object], then: Callable[..., object], number: int, frame: FrameType | None) -> None:
    callback()
    then(number, frame)


def allow_many_files() -> None:
    """Raise the limit of open files to its maximum: each user of a server takes four, and shells default to 1,024."""
    if resource:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def limit_memory(process: int, most: int) -> None:
    """Limit the memory of another process, if the system can."""
    if resource and hasattr(resource, "prlimit"):
        _, own = resource.prlimit(process, resource.RLIMIT_DATA)
        resource.prlimit(process, resource.RLIMIT_DATA, (most if own < 0 else min(most, own), own))


def start_python(module: str, *arguments: str, stderr: int | None = None) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that runs a module of this program with one torch thread. Returns it and our end of a connection;
    the module's first argument is the file descriptor of the other end. stderr: as subprocess.Popen takes it."""
    ours, theirs = Pipe()
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(theirs.fileno()), *arguments],  # -P: no imports from the working
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},  # folder, which is ours, as model paths need
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )
    theirs.close()
    return process, ours


def keep_freed_memory() -> None:
    """Keep up to 64 MB of freed memory at the end of a heap for the next allocation. By default glibc returns it to the
    system at once, and every page has to be cleared again. Does nothing with other C libraries."""
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)  # the largest threshold allowed
        library.mallopt(M_TRIM_THRESHOLD, 64 * 2**20)


def return_freed_memory() -> None:
    """Return what is free in the heaps of all threads to the system. Does nothing with other C libraries."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_ray_on_loopback() -> None:
    """Make a new Ray cluster listen at 127.0.0.1 alone, as on Windows and macOS. Call before Ray is imported.
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1 lets other machines join."""
    if "RAY_ADDRESS" not in os.environ:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _of_data() -> list[int]:
    """Return the hard limit on the process's own memory, without mapped files and libraries, in a list; [] if none."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[1] if resource else -1
    return [most] if most >= 0 else []


def _read(name: str) -> str:
    try:
        return (CGROUP / name).read_text().strip()
    except OSError:
        return ""


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread in the calling thread, within the context. Other threads, old and new, keep theirs."""
    if not torch.backends.openmp.is_available():  # other thread pools cannot be resized
        yield
        return
    own = torch.get_num_threads()
    others = _set_thread_count(1)
    # torch compiles FlexAttention with buffers for this thread's number of threads, but may run it with another's
    patch = getattr(sys.modules.get("torch._inductor.config"), "patch", None)  # not imported here: it takes a second
    try:
        with patch({"cpp.threads": max(own, others)}) if patch else nullcontext():
            yield
    finally:
        _set_thread_count(own)


def _set_thread_count(count: int) -> int:
    """Set the number of torch threads of the calling thread. A thread that first uses torch within these microseconds
    may get it too. Returns the number that new threads start with."""
    with _LOCK, ThreadPoolExecutor(1) as another:
        begins_with: int = another.submit(torch.get_num_threads).result()
        torch.set_num_threads(count)
        another.submit(torch.set_num_threads, begins_with).result()
    return begins_with
