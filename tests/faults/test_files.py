"""A full disk, or kill -9, while a checkpoint, an atlas or a report is written leaves no partial file under its name.

The full disk is /dev/full, which accepts no byte: the temporary file that is renamed after writing is a link to it.
Stopping a process at any moment leaves on the disk what killing it there would.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import unmask
from model import files
from model.atlas import __main__ as atlas
from model.atlas import progress as atlas_progress
from model.atlas.progress import new_progress
from model.cross_attention import dates
from model.gpt2 import save_transformer
from model.transformer import Transformer
from tests.tiny import TINY
from unmask.__main__ import main as unmask_command

WORDS = "the cat sat on the mat"


def checkpoint(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    save_transformer(Transformer(TINY), folder)


def dates_checkpoint(folder: Path, seed: int) -> None:
    network = dates.load().network
    next(network.parameters()).data.fill_(seed)
    dates.save(network, folder)


def state(folder: Path, seed: int) -> None:
    progress = new_progress(unmask.load("story").model, 16)
    progress.next_unit[0] = seed
    atlas_progress.save(folder / "atlas.parquet.part", {}, progress)


def report(folder: Path, seed: int) -> None:
    unmask.report(unmask.load("story").run(f"{WORDS} {seed}")).save(folder / "report.html")


WRITTEN: dict[str, Callable[[Path, int], None]] = {
    "model.safetensors": checkpoint,
    "config.json": checkpoint,
    "tokenizer.json": dates_checkpoint,
    "atlas.parquet.part": state,
    "report.html": report,
}


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Make every write of this file fail."""
    usual = Path.open

    def opened(file: Path, mode: str = "r", **others: Any) -> Any:
        if mode == "xb" and file.name.startswith(path.name):
            file.symlink_to("/dev/full")
            return usual(file, "wb")
        return usual(file, mode, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", opened)
        yield


@pytest.mark.parametrize("name", WRITTEN)
def test_what_was_there_before_a_full_disk_is_still_there_and_nothing_else(tmp_path: Path, name: str) -> None:
    WRITTEN[name](tmp_path, 3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    message = rf"{name} was not written \(No space left on device\)"
    with full_disk(tmp_path / name), pytest.raises(OSError, match=message):
        WRITTEN[name](tmp_path, 5)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.keys() == before.keys()
    assert after[name] == before[name]


def test_a_symlink_is_followed_and_no_other_file_is_touched(tmp_path: Path) -> None:
    link, target, other = (tmp_path / name for name in ("link.html", "target.html", "target.html.tmp"))
    link.symlink_to(target)
    for text in (b"created", b"replaced"):
        other.write_bytes(b"precious")
        files.write(link, text)
        assert (link.is_symlink(), target.read_bytes(), other.read_bytes()) == (True, text, b"precious")
    assert set(tmp_path.iterdir()) == {link, target, other}


def test_links_in_a_loop_and_a_name_that_is_too_long_are_refused_with_a_sentence(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop, tmp_path / ("x" * 300)):
        with pytest.raises(OSError, match=r"was not written \(.+\); what was there before is as it was"):
            files.write(path, b"text")
    assert [path.is_symlink() for path in tmp_path.iterdir()] == [True]


def test_a_private_file_stays_private(tmp_path: Path) -> None:
    private = tmp_path / "report.html"
    private.touch(0o600)
    files.write(private, b"text")
    assert (private.stat().st_mode & 0o777, private.read_bytes()) == (0o600, b"text")


@pytest.mark.parametrize(("mode", "before"), [("wb", b""), ("ab", b"precious ")])
def test_standard_output_that_is_a_file_keeps_what_is_written_around(mode: str, before: bytes, tmp_path: Path) -> None:
    write = "from pathlib import Path; from model import files; files.write(Path('/dev/stdout'), b'page ')"
    (tmp_path / "out").write_bytes(b"precious ")
    with (tmp_path / "out").open(mode) as out:
        subprocess.run([sys.executable, "-c", f"{write}; print('more')"], stdout=out, check=True)
    assert (tmp_path / "out").read_bytes() == before + b"page more\n"


@pytest.mark.parametrize("command", ["page", "report"])
def test_a_fifo_is_written_to_and_stays_one(command: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with (tmp_path / "copy").open("wb") as copy:
        reader = subprocess.Popen(["cat", str(fifo)], stdout=copy)
    try:
        assert unmask_command([command, "--text", WORDS, "-o", str(fifo)]) == 0
        assert fifo.is_fifo()
        reader.wait()
    finally:
        reader.kill()
        reader.wait()
    assert (tmp_path / "copy").read_bytes().rstrip().endswith(b"</html>")


def test_a_name_as_long_as_it_can_be_is_written(tmp_path: Path) -> None:
    files.write(tmp_path / ("💩" * 63), b"whole")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


@pytest.mark.parametrize("path", [".", "", "/"])
def test_a_folder_is_no_file(path: str) -> None:
    with pytest.raises(OSError, match=r"was not written \(Is a directory\)"):
        files.write(Path(path), b"")


def test_the_atlas_command_says_so(tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text(f"{WORDS}\n" * 3)
    out = tmp_path / "atlas.parquet"
    command = [str(tiny_folder), str(tmp_path / "texts.txt"), "-o", str(out)]
    with full_disk(out):
        assert atlas.main(command) == 2
    assert "atlas.parquet was not written (No space left on device)" in capsys.readouterr().err
    assert not out.exists()
    assert atlas.main(command) == 0
    assert out.read_bytes().endswith(b"PAR1")


def test_the_command_that_makes_a_report_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    with full_disk(out):
        assert unmask_command(["report", "--model", "story", "--text", WORDS, "-o", str(out)]) == 2
    assert "report.html was not written (No space left on device)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


WRITES_FOR_EVER = """
import sys
from pathlib import Path
from model.files import write
for number in range(1_000_000):
    write(Path(sys.argv[1]), bytes([number % 251]) * 20_000_000)
"""


def test_whenever_who_writes_is_killed_all_of_one_file_lies_there(tmp_path: Path) -> None:
    path, size = tmp_path / "checkpoint", 20_000_000
    writer = subprocess.Popen([sys.executable, "-c", WRITES_FOR_EVER, str(path)], cwd=Path(__file__).parents[2])
    seen = set()
    try:
        end = time.monotonic() + 60
        while len(seen) < 10 and time.monotonic() < end:
            time.sleep(0.003)
            writer.send_signal(signal.SIGSTOP)
            if path.exists():
                assert path.stat().st_size == size
                with path.open("rb") as file:
                    first = file.read(1)
                    file.seek(-1, 2)
                    assert file.read(1) == first
                seen.add(first)
            writer.send_signal(signal.SIGCONT)
    finally:
        writer.kill()
        writer.wait()
    assert len(seen) == 10
