"""The commands of `python -m unmask`: what they print, and their exit status."""

import argparse
import os
import runpy
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from i18n import LANGUAGES
from mask_check import findings
from mask_check.check import check as measure
from mask_check.check import explain
from model.base import CHECKPOINTS
from model.files import to_stdout, write
from serving.settings import Settings
from unmask.checking import PREFIXES, SAMPLES, network_of
from unmask.limits import cut_sentence

APP = CHECKPOINTS.parents[1] / "app.py"  # beside the folder model/, in a checkout as in the installed package
COULD_NOT = 2
OPTIONS = ("mask", "length", "seed", "seconds", "tokens", "thorough", "packing")  # the options of a check
GRACE = 5.0  # seconds after the limit, besides those of the slowest, in which a forward may finish


def open_app(_asked: argparse.Namespace) -> int:
    """Serve the app and open it in the browser, until it is stopped."""
    Settings.of_server()
    sys.argv = ["streamlit", "run", str(APP)]
    runpy.run_module("streamlit", run_name="__main__")  # `python -m streamlit run`, which ends by SystemExit
    return 0


def train(arguments: list[str]) -> int:
    """Train a built-in model, as `python -m model.training` does in a checkout."""
    from model.training.__main__ import main

    return _writes("model", main, arguments)


def check(args: argparse.Namespace) -> int:
    """Run a check and print the report. 0: it obeys; 1: a property is violated; 2: it could not run, with the
    reason."""
    _quiet()
    if not args.explain and not args.model:
        return _print_failure("expected a model, sample:KEY or file.py:NAME; --explain CHECK describes a check")
    if args.explain:
        try:
            return to_stdout(explain(args.explain))
        except ValueError as error:
            return _print_failure(str(error))
    try:
        with redirect_stdout(sys.stderr):  # keep what a file and its module print apart from the report
            report = _measured(args)
    except SystemExit as error:  # raised in a forward: its status must not become the check's
        return _print_failure(f"{args.model} could not be checked: it called sys.exit({error.code!r})")
    except (ValueError, OSError, MemoryError) as error:  # CannotCheck, CheckpointError, NotAvailable
        words = _error_text(error).removeprefix(f"{args.model}: ")
        return _print_failure(f"{args.model} could not be checked: {words}")
    failed = 0
    if args.junit:
        try:
            Path(args.junit).write_text(findings.as_junit(report), encoding="utf-8")
        except OSError as error:
            failed = _print_failure(f"{args.junit} was not written ({error.strerror})")
    failed |= to_stdout(findings.as_json(report) if args.json else findings.as_text(report, picture=args.picture))
    return report.exit_code or failed


def _measured(args: argparse.Namespace) -> findings.CheckReport:
    progress = _progress if args.download else None
    module = network_of(args.model, getattr(torch, args.dtype), download=args.download, progress=progress)
    kernels = ("eager", "sdpa", "flex_attention") if args.flex else None
    options = {name: getattr(args, name) for name in OPTIONS}
    title = f"{Path(args.model).name} ({type(module).__name__})"
    begun: list[float] = []  # when each forward began
    with stopped_after(args.seconds + GRACE, begun):
        return measure(
            module, name=title, kernels=kernels, progress=lambda *_: begun.append(time.monotonic()), **options
        )


def _writes(what: str, make: Callable[[Any], None], args: Any) -> int:
    """Write a file by calling make. Returns 0, or 2 after printing why it could not be written."""
    _quiet()
    try:
        make(args)
    except (ValueError, OSError, MemoryError) as error:
        return _print_failure(f"No {what} was written: {_error_text(error)}")
    return 0


def _error_text(error: Exception) -> str:
    system = isinstance(error, OSError) and error.filename and f"{error.filename}: {error.strerror}"
    return system or str(error).strip().rstrip(".") or type(error).__name__


def _print_failure(words: str) -> int:
    print(f"{words}.", file=sys.stderr)
    return COULD_NOT


def _report(args: argparse.Namespace) -> None:
    from unmask import report_request

    run, heads = report_request.run_of(args)
    link = report_request.link_to(run, heads[0] if heads else run.first_head())
    size = report_request.report(run, heads, link=link).save(args.output).stat().st_size
    to_stdout(f"{args.output}: {run!r}, {size / 1e6:.1f} MB")
    if run.cut:
        print(cut_sentence(run), file=sys.stderr)


def _page(args: argparse.Namespace) -> None:
    from unmask import report_request
    from viz.saved.live import FIRST_TEXT

    written = report_request.live_page_of(args, FIRST_TEXT if args.text is None else args.text)
    write(Path(args.output), written.encode("utf-8", "backslashreplace"))
    to_stdout(f"{args.output}: {args.model}, {len(written) / 1e6:.1f} MB")


def _course(args: argparse.Namespace) -> None:
    from unmask.course import course

    site = Path(args.output)
    for folder in (*LANGUAGES, "models"):  # first: lessons take minutes, and a file may be in the way
        (site / folder).mkdir(parents=True, exist_ok=True)
    files = course(Path(args.lessons) if args.lessons else None, download=args.download, made=_made)
    for path, data in files.items():
        write(site / path, data)
    to_stdout(f"{args.output}: {len(files)} files, {sum(map(len, files.values())) / 1e6:.1f} MB")


report = partial(_writes, "report", _report)  # one HTML file
page = partial(_writes, "page", _page)  # one HTML file that holds the model
course = partial(_writes, "course", _course)  # a folder of pages


def samples(_asked: argparse.Namespace) -> int:
    """Print the names of the sample modules."""
    lines = []
    for sample in SAMPLES.values():
        law = f"breaks {sample.law}" if sample.law else "correct"
        lines.append(f"{PREFIXES[0] + sample.key:<24} {law:<22} {' '.join(sample.said.split())}")
    return to_stdout("\n".join(lines))


@contextmanager
def stopped_after(seconds: float, begun: Sequence[float] = ()) -> Iterator[None]:
    """End the program with a message if the context is still running then: a forward cannot be interrupted. begun: when
    each forward began; the last may take as long again as the slowest before it."""
    ended = threading.Event()

    def stop() -> None:
        if ended.wait(seconds):
            return
        slowest = max((later - one for one, later in pairwise([*begun])), default=0.0)
        if ended.wait(slowest):
            return
        remedy = "allow more time with --seconds, or shorter rows with --tokens or --length"
        running = f"one forward was still running after {seconds + slowest:.0f} s"
        print(f"It could not be checked: {running}; {remedy}.", file=sys.stderr)
        sys.stderr.flush()
        os._exit(COULD_NOT)

    threading.Thread(target=stop, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _quiet() -> None:
    """Silence the libraries, so that only the findings are printed."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # read when transformers is imported, which takes seconds


def _progress(file: str, done: int, total: int) -> None:
    if total:
        print(f"\r{file}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB", end="", file=sys.stderr)
        if done >= total:
            print(file=sys.stderr)


def _made(number: int, most: int, path: str) -> None:
    print(f"{number} of {most}: {path}", file=sys.stderr, flush=True)
