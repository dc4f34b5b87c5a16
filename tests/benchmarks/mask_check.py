"""The mask check of every causal, masked and seq2seq model type of transformers, tiny and random, in two number types.

    python -m tests.benchmarks.mask_check [TYPE ...]      all of them: 20 minutes on one core

Prints a line for every alarm, as Markdown, and for every type that could not be built or checked; then the number of
types for each verdict. Each type is checked in a process of its own.
"""

import argparse
import multiprocessing
import warnings
from collections import Counter
from multiprocessing.connection import Connection

import torch
import transformers as hf

from mask_check.check import check
from tests.model.huggingface.every_type import MAPPINGS, network_of

LIMIT = 180.0  # time limit of one check, in seconds
NUMBER_TYPES = torch.float32, torch.bfloat16
VERDICTS = "obeys", "alarm", "cannot tell"  # by exit code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE")
    only = parser.parse_args().types
    hf.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    print("| mapping | model type | number type | check | found |\n|---|---|---|---|---|")
    counts: Counter[tuple[str, str, str]] = Counter()
    for mapping, types in MAPPINGS.items():
        for name in [one for one in types if not only or one in only]:
            for number_type in NUMBER_TYPES:
                dtype = str(number_type).removeprefix("torch.")
                verdict, found = checked(mapping, name, number_type)
                counts[mapping, dtype, verdict] += 1
                for law, why in found:
                    print(f"| {mapping} | {name} | {dtype} | {law} | {why} |", flush=True)
    print()
    for (mapping, dtype, verdict), count in sorted(counts.items()):
        print(f"{mapping}, {dtype}: {count} {verdict}")


def checked(mapping: str, name: str, number_type: torch.dtype) -> tuple[str, list[tuple[str, str]]]:
    """Return a verdict, and the broken laws with the findings."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_check, args=(theirs, mapping, name, number_type))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(LIMIT) else ("refused", [("", f"no answer in {LIMIT:.0f} s")])
    except EOFError:
        return "refused", [("", "its process died")]
    finally:
        process.kill()
        process.join()


def _check(connection: Connection, mapping: str, name: str, number_type: torch.dtype) -> None:
    torch.set_num_threads(1)
    try:
        network = network_of(mapping, name).to(number_type)
    except Exception as error:  # noqa: BLE001 - a type that needs a package, or whose sizes do not fit each other
        connection.send(("not built", [("", f"{type(error).__name__}: {str(error).strip()[:100]}")]))
        return
    try:
        report = check(network, seconds=None)
    except Exception as error:  # noqa: BLE001 - CannotCheck, and what a forward raises before the first law
        connection.send(("refused", [("", f"{type(error).__name__}: {str(error)[:150]}")]))
        return
    connection.send((VERDICTS[report.exit_code], [(one.law, str(one.words)) for one in report.broken]))


if __name__ == "__main__":
    main()
