"""The numbers to hold, as ratios in one run, in a Markdown table.

    python -m tests.benchmarks [NAME ...]     all of them, or those named

A new measurement is one function in one file, without arguments, that returns its ratios, and one line in MEASUREMENTS.
"""

import argparse
from collections.abc import Callable

from tests.benchmarks.beside import beside_trainings
from tests.benchmarks.forward import traced_forward
from tests.benchmarks.lab import drawn_cell
from tests.benchmarks.llama import traced_llama
from tests.benchmarks.memory import trace_memory
from tests.benchmarks.page import first_page, flipped_mask, overview_bytes
from tests.benchmarks.report import Ratio, machine, table

MEASUREMENTS: dict[str, Callable[[], list[Ratio]]] = {
    "forward": traced_forward,
    "llama": traced_llama,
    "memory": trace_memory,
    "overview": overview_bytes,
    "flip": flipped_mask,
    "draw": drawn_cell,
    "beside": beside_trainings,
    "start": first_page,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure the numbers to hold.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; all of them by default"
    )
    names = parser.parse_args().names or list(MEASUREMENTS)
    unknown = set(names) - set(MEASUREMENTS)
    if unknown:
        parser.error(f"expected names of {', '.join(MEASUREMENTS)}, got {', '.join(sorted(unknown))}")
    described = machine()
    print(table(ratio for name in names for ratio in MEASUREMENTS[name]()))
    print(f"\n{described}")


if __name__ == "__main__":
    main()
