"""Tests of the resources that this process may use: a container's limits apply, not the machine's."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from serving import machine

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a control group made for the test, with no limits cached before or after it."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    for limit in (machine.cores, machine.memory_bytes):
        limit.cache_clear()
    yield tmp_path
    for limit in (machine.cores, machine.memory_bytes):
        limit.cache_clear()


FAULTS = """
import resource, sys
import numpy as np
from serving import machine
if sys.argv[1] == "kept":
    machine.keep_freed_memory()
for turn in range(20):
    if turn == 4:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    some = [np.ones(3 * 2**18) for _ in range(4)]  # 24 MB
    del some
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is asked")
def test_freed_memory_that_is_kept_is_not_found_anew() -> None:
    given_back, kept = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], cwd=ROOT, capture_output=True, check=True).stdout)
        for how in ("given back", "kept")
    )
    assert kept < given_back / 10


@pytest.mark.parametrize(
    ("allowed", "limit", "expected"),
    [(7, "300000 100000", 3), (7, "150000 100000", 2), (5, "max 100000", 5), (2, None, 2), (3, "nonsense", 3)],
)
def test_cores(
    container: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, limit: str | None, expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(allowed)))
    if limit is not None:
        (container / "cpu.max").write_text(f"{limit}\n")
    assert machine.cores() == expected


def test_memory(container: Path) -> None:
    assert machine.memory_bytes() == psutil.virtual_memory().total
    (container / "memory.max").write_text("1500000000\n")
    machine.memory_bytes.cache_clear()
    assert machine.memory_bytes() == 1_500_000_000


def test_memory_of_a_process_that_was_given_little(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = psutil.Process().memory_info().data + 10**9
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert machine.memory_bytes() == limit
    assert machine.free_bytes() == pytest.approx(10**9, abs=10**8)
    monkeypatch.setattr("resource.getrlimit", lambda _: (1, 1))
    assert machine.free_bytes() == 0


def test_free_memory_is_what_the_container_has_left(container: Path) -> None:
    (container / "memory.max").write_text("1500000\n")
    (container / "memory.current").write_text("1100000\n")
    assert machine.free_bytes() == 400_000
    (container / "memory.current").write_text("1700000\n")
    assert machine.free_bytes() == 0
    (container / "memory.max").write_text("max\n")
    assert machine.free_bytes() > 1_500_000


def test_who_waits_is_told_before_the_process_ends() -> None:
    calls: list[str] = []
    before = {
        number: signal.signal(number, lambda *_: calls.append("ends")) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        machine.on_termination(lambda: calls.append("told"))
        for number in before:
            signal.raise_signal(number)
    finally:
        for number, then in before.items():
            signal.signal(number, then)
    assert calls == ["told", "ends"] * 2
