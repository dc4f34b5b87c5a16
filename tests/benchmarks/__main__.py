"""The benchmarks with a limit each: ratios measured in one run, printed as a Markdown table.

    python -m tests.benchmarks [NAME ...] [--page PAGE] [--minutes N] [--workers N]

Runs the benchmarks named, or all but those of OF_A_CROWD, which take minutes to an hour each. A new benchmark is one
function in one file that returns its ratios, and one line in MEASUREMENTS. Those of OF_A_PAGE take the name of a page,
by default Explore.
"""

import argparse
from collections.abc import Callable

from tests.benchmarks.atlas import atlas
from tests.benchmarks.bertviz import beside_bertviz
from tests.benchmarks.beside import beside_trainings
from tests.benchmarks.circuits import circuits
from tests.benchmarks.classroom import two_hundred_phones
from tests.benchmarks.crowd import class_of_sixty, hour_of_thirty, two_hundred_idle
from tests.benchmarks.evict import evictions
from tests.benchmarks.forward import traced_forward
from tests.benchmarks.jobs import jobs_elsewhere
from tests.benchmarks.lab import drawn_cell
from tests.benchmarks.live import live_page
from tests.benchmarks.llama import traced_llama
from tests.benchmarks.long import long_texts
from tests.benchmarks.memory import trace_memory
from tests.benchmarks.page import first_page, flipped_mask, overview_bytes
from tests.benchmarks.pictures import first_pictures
from tests.benchmarks.readers import SWITCHES, readers
from tests.benchmarks.report import Ratio, machine, table
from tests.benchmarks.serving import streams_and_costs

MEASUREMENTS: dict[str, Callable[[], list[Ratio]]] = {
    "forward": traced_forward,
    "llama": traced_llama,
    "memory": trace_memory,
    "long": long_texts,
    "atlas": atlas,
    "circuits": circuits,
    "overview": overview_bytes,
    "flip": flipped_mask,
    "draw": drawn_cell,
    "serving": streams_and_costs,
    "jobs": jobs_elsewhere,
    "beside": beside_trainings,
    "evict": evictions,
    "start": first_page,
    "live": live_page,
    "pictures": first_pictures,
    "bertviz": beside_bertviz,
}
OF_A_PAGE: dict[str, Callable[[str], list[Ratio]]] = {"readers": readers}
OF_A_CROWD: dict[str, Callable[[float | None, int], list[Ratio]]] = {
    "class": class_of_sixty,
    "hour": hour_of_thirty,
    "idle": two_hundred_idle,
    "phones": two_hundred_phones,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure the numbers to hold.")
    every = (*MEASUREMENTS, *OF_A_PAGE, *OF_A_CROWD)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(every)}")
    parser.add_argument("--page", choices=(*SWITCHES, "all"), default="explore", help="whose readers")
    parser.add_argument("--minutes", type=float, help=f"of {', '.join(OF_A_CROWD)}; their own by default")
    parser.add_argument("--workers", type=int, default=2, help="of the crowds' server; 0: its own threads")
    given = parser.parse_args()
    unknown = set(given.names) - set(every)
    if unknown:
        parser.error(f"expected names of {', '.join(every)}, got {', '.join(sorted(unknown))}")
    described = machine()
    names = given.names or (*MEASUREMENTS, *OF_A_PAGE)
    ratios = [pair for name in names for pair in measure(name, given.page, given.minutes, given.workers)]
    print(table(ratios))
    print(f"\n`argument`: the argument of `python -m tests.benchmarks`. {described}")


def measure(name: str, page: str, minutes: float | None, workers: int) -> list[tuple[str, Ratio]]:
    """Return the ratios of one benchmark, each with the command-line arguments that measure it."""
    if name in OF_A_CROWD:
        return [(f"{name} --workers {workers}", ratio) for ratio in OF_A_CROWD[name](minutes, workers)]
    if name in MEASUREMENTS:
        return [(name, ratio) for ratio in MEASUREMENTS[name]()]
    pages = SWITCHES if page == "all" else (page,)
    return [(f"{name} --page {one}", ratio) for one in pages for ratio in OF_A_PAGE[name](one)]


if __name__ == "__main__":
    main()
