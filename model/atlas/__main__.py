"""The command that measures a model's heads over texts of any size, without the page:

    python -m model.atlas MODEL FILE.txt FILE.csv … -o atlas.parquet

writes a row for each head to atlas.parquet, and examples by decile to atlas.examples.parquet. Files are read as needed,
so memory does not grow with them. Ctrl-C stops it after the current texts; the same command continues from there.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from i18n import msg_count
from model import catalog
from model.atlas.progress import (
    AtlasProgress,
    about,
    atlas_from_progress,
    load,
    measured_in_threads,
    measured_on_ray,
    new_progress,
    save,
)
from model.atlas.table import as_parquet, examples_path, examples_table, heads_table
from model.atlas.unit import LONGEST, LONGEST_ROW, Unit, check, row_length, units_of_files, units_of_random
from model.files import to_stdout, write
from model.masks import NATIVE
from serving import machine

SAVE_EVERY = 30.0  # seconds between two saves of the progress
STOPPED = 130  # the exit status of a program ended by Ctrl-C


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Return its exit status: 0 done, 130 stopped, 2 with an error message."""
    parser = argparse.ArgumentParser(
        prog="python -m model.atlas",
        description="Measure every head of a model over texts, and write what was found as Parquet tables.",
        epilog="A line of a .txt file is a text, and a cell of a .csv file's column text; one of more than "
        f"{LONGEST:,} characters is read as several texts. Ctrl-C stops it; the same command resumes it.",
    )
    parser.add_argument("model", help="a model name of the app, a Hub id or a folder")
    parser.add_argument("files", nargs="*", type=Path, help="texts, as .txt or .csv in UTF-8")
    parser.add_argument("-o", "--out", type=Path, default=Path("atlas.parquet"), help="output file")
    parser.add_argument("--random", action="store_true", help="random tokens repeated twice, instead of files")
    parser.add_argument("--length", type=int, default=LONGEST_ROW, help="most tokens of a row; longer texts are cut")
    liftable = [name for name in NATIVE if name != "padding"]
    parser.add_argument("--without", nargs="+", default=[], choices=liftable, help="masks of the model to turn off")
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help="spread it over a Ray cluster: "
                        "the one at ADDRESS, or a new one on this machine")  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        return _run(given)
    except (ValueError, OSError) as error:
        print(f"atlas: {error}", file=sys.stderr)
        return 2


def _run(given: argparse.Namespace) -> int:
    if bool(given.files) == given.random:
        raise ValueError("expected files, or --random instead of them")
    if given.length < 2:
        raise ValueError(f"expected rows of at least 2 tokens, got {given.length}")
    if given.out.suffix.lower() != ".parquet" or not given.out.parent.is_dir():
        raise ValueError(f"expected a file whose name ends in .parquet, in a folder that is there, got {given.out}")
    machine.keep_freed_memory()
    model = catalog.load(given.model)
    lifted: dict[str, Any] = dict.fromkeys(given.without, False)
    masks = replace(model.standard, **lifted)
    check(model, masks)
    length = row_length(model, given.length)
    units = units_of_random(model) if given.random else units_of_files(given.files)
    files = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in given.files]
    settings = {"model": model.key, "files": files, "masks": json.loads(masks.to_json()), "length": length}
    state = given.out.with_suffix(given.out.suffix + ".part")
    progress = load(state, settings) if state.exists() else new_progress(model, length)
    if given.ray is not None:
        done = measured_on_ray(given.model, units, masks, length, progress, given.ray)
    else:
        done = measured_in_threads(model, units, masks, length, progress)
    with _stop_signals() as signals:
        finished = _follow(done, progress, lambda: save(state, settings, progress), signals)
    if not finished:
        print(f"\nStopped after {progress.tally.texts:,} texts. The same command goes on from there.", file=sys.stderr)
        return STOPPED
    if not progress.tally.rows:
        raise ValueError("expected a text of at least two tokens in the files, found none")
    atlas = atlas_from_progress(progress, model)
    metadata = about(model, masks, length, atlas)
    write(given.out, as_parquet(heads_table(atlas), metadata))
    write(examples_path(given.out), as_parquet(examples_table(atlas), metadata))
    state.unlink(missing_ok=True)
    sizes = f"{model.num_layers} × {msg_count('{count} head', '{count} heads', model.num_heads)}"
    read = msg_count("{count} text", "{count} texts", atlas.texts)
    to_stdout(f"{given.out}: {sizes}, {read}, {msg_count('{count} token', '{count} tokens', atlas.read)}")
    return 0


def _follow(done: Iterator[Unit], progress: AtlasProgress, keep: Callable[[], None], signals: list[int]) -> bool:
    """Measure to the end, saving regularly. Return False if it was asked to stop."""
    began = saved = time.monotonic()
    read_before = progress.tally.read  # by earlier runs
    for _ in done:
        now = time.monotonic()
        if sys.stderr.isatty():
            speed = (progress.tally.read - read_before) / (now - began)
            print(f"\r{progress.tally.texts:,} texts, {progress.tally.read:,} tokens, {speed:,.0f} a second ",
                  end="", file=sys.stderr)  # fmt: skip
        if signals or now - saved > SAVE_EVERY:
            keep()
            saved = now
        if signals:
            return False
    return True


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Yield a list that gets an item on Ctrl-C or SIGTERM; a second Ctrl-C ends the program at once."""
    signals: list[int] = []

    def ask(number: int, _: object) -> None:
        if signals:
            signal.default_int_handler(number, None)
        signals.append(number)
        print("\nStopping after the texts in hand …", file=sys.stderr)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
