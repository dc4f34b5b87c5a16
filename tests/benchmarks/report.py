"""The results of benchmarks, and their Markdown table."""

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import torch


@dataclass(frozen=True)
class Ratio:
    """A result, measured ÷ reference, and its limit: at most `bar`, or at least. detail: both in their own units."""

    what: str
    ratio: float
    bar: float
    detail: str
    at_least: bool = False

    @property
    def held(self) -> bool:
        return self.ratio >= self.bar if self.at_least else self.ratio <= self.bar


def table(ratios: Iterable[tuple[str, Ratio]]) -> str:
    """Return a Markdown table, one line per ratio. ratios: (arguments of `python -m tests.benchmarks`, result)."""
    lines = ["| what | ratio | limit | holds | measured | argument |", "|---|---|---|---|---|---|"]
    for by, one in ratios:
        bar = f"{'≥' if one.at_least else '≤'} {one.bar}"
        held = "yes" if one.held else "**no**"
        lines.append(f"| {one.what} | {one.ratio:.2f} | {bar} | {held} | {one.detail} | `{by}` |")
    return "\n".join(lines)


def p95(seconds: list[float]) -> float:
    return quantiles(seconds, n=20)[-1]


def machine() -> str:
    """Return a description of the machine in one line, with its load at the time of the call."""
    busy = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    return (
        f"{_processor()}, {os.cpu_count()} cores, {_memory()}, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, torch {torch.__version__} with {torch.get_num_threads()} threads; "
        f"{busy} at the start"
    )


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _memory() -> str:
    if not hasattr(os, "sysconf"):
        return "memory unknown"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
