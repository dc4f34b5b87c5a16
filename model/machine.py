"""What this process may use of its machine: cores and memory, as affinity and control groups allow."""

import os
from functools import cache
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")


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
    """The memory this process may ever have: its control group's limit, or the machine's."""
    limits = [psutil.virtual_memory().total]
    limits += [int(text) for text in (_read("memory.max"), _read("memory/memory.limit_in_bytes")) if text.isdecimal()]
    return min(limits)


def free_bytes() -> int:
    """The memory that is free for it now, within the same limits."""
    free = psutil.virtual_memory().available
    limit, used = _read("memory.max"), _read("memory.current")
    return min(free, max(int(limit) - int(used), 0)) if limit.isdecimal() and used.isdecimal() else free


def _read(name: str) -> str:
    try:
        return (CGROUP / name).read_text().strip()
    except OSError:
        return ""
