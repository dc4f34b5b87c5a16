"""Tests of the command python -m model.atlas: its tables, stopped and resumed runs, refusals, runs on a cluster."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet
import pytest

from model.atlas import __main__ as atlas
from model.atlas import progress as atlas_progress
from model.atlas import unit as atlas_unit
from model.atlas.result import NAMES
from model.atlas.table import as_parquet, examples_path, examples_table, heads_table
from model.atlas.unit import units_of_upload
from model.base import Model

LINES = [f"the cat {number} sat on the mat, and the mat sat still" for number in range(70)]  # three units


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "some.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


def same_tables(one: Path, other: Path) -> None:
    """Assert that two runs' files of heads and of examples are equal byte for byte, metadata included."""
    assert one.read_bytes() == other.read_bytes()
    assert examples_path(one).read_bytes() == examples_path(other).read_bytes()


def test_it_writes_a_row_a_head_and_examples(tiny_folder: Path, tiny: Model, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "atlas.parquet"
    assert atlas.main([str(tiny_folder), str(texts), "-o", str(out), "--length", "24"]) == 0
    heads, examples = pd.read_parquet(out), pd.read_parquet(examples_path(out))
    assert list(zip(heads["layer"], heads["head"], strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert set(NAMES) < set(heads.columns)
    assert heads["previous"].between(0, 1).all()
    assert sum(part["share"] for part in heads["spread"][0]) == pytest.approx(1)
    assert set(heads["key_tokens"][0][0]) == {"token", "share", "count"}
    assert set(examples["decile"]) == set(range(1, 11))
    assert examples["text"].max() < len(LINES)
    one = examples.iloc[0]
    assert one["row"] in LINES[one["text"]]
    about = json.loads(parquet.read_schema(out).metadata[b"unmask"])
    assert about["texts"] == len(LINES)
    assert about["masks"]["causal"] is True
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob("*.tmp"))


def test_it_runs_by_its_old_name_too() -> None:
    ran = subprocess.run([sys.executable, "-m", "model.heads.atlas", "--help"], capture_output=True, text=True)
    assert ran.returncode == 0
    assert ran.stdout.startswith("usage: python -m model.atlas ")


def test_its_tables_are_those_that_the_page_gives(tiny_folder: Path, tiny: Model, texts: Path, tmp_path: Path) -> None:
    """The page measures an upload's units in the same steps and offers the same tables."""
    out = tmp_path / "atlas.parquet"
    assert atlas.main([str(tiny_folder), str(texts), "-o", str(out)]) == 0
    length = atlas_unit.row_length(tiny)
    progress = atlas_progress.new_progress(tiny, length)
    units = units_of_upload("some.txt", texts.read_bytes())
    assert (
        len(
            list(
                atlas_progress.measured(
                    units, progress, lambda unit, bar: atlas_unit.measure_unit(tiny, unit, tiny.standard, length, bar)
                )
            )
        )
        == 3
    )
    made = atlas_progress.atlas_from_progress(progress, tiny)
    about = atlas_progress.about(tiny, tiny.standard, length, made)
    assert as_parquet(heads_table(made), about) == out.read_bytes()
    assert as_parquet(examples_table(made), about) == examples_path(out).read_bytes()


def test_a_lifted_mask_and_random_tokens(tiny_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "atlas.parquet"
    assert atlas.main([str(tiny_folder), "--random", "-o", str(out), "--without", "causal"]) == 0
    assert (pd.read_parquet(out)["leak"] > 0).all()
    assert json.loads(parquet.read_schema(out).metadata[b"unmask"])["masks"]["causal"] is False


def test_stopped_and_gone_on_with_it_is_the_same_table(
    tiny_folder: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The run is interrupted as by Ctrl-C after its first unit, resumed, and interrupted again after its second."""
    whole, parts = tmp_path / "whole.parquet", tmp_path / "parts.parquet"
    assert atlas.main([str(tiny_folder), str(texts), "-o", str(whole)]) == 0
    measured: list[int] = []
    original = atlas_progress.measure_unit

    def interrupted(model: Model, unit: Any, *rest: Any) -> Any:
        measured.append(unit.number)
        if len(measured) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return original(model, unit, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(atlas_progress, "measure_unit", interrupted)
        for first, texts_so_far in enumerate((32, 64)):
            measured.clear()
            assert atlas.main([str(tiny_folder), str(texts), "-o", str(parts)]) == 130
            assert f"Stopped after {texts_so_far} texts" in capsys.readouterr().err
            assert not parts.exists()
            assert measured[0] == first
    assert atlas.main([str(tiny_folder), str(texts), "-o", str(parts)]) == 0
    same_tables(whole, parts)
    assert not list(tmp_path.glob("*.part"))


def test_its_speed_leaves_out_what_earlier_runs_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A run resumed after 9,000 tokens, whose duration is unknown, reads 100 more in 4 seconds."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(atlas, "time", SimpleNamespace(monotonic=iter([17.0, 21.0]).__next__))
    tally = SimpleNamespace(texts=31, read=9_000)

    def done() -> Iterator[Any]:
        tally.read += 100
        yield None

    progress: Any = SimpleNamespace(tally=tally)
    assert atlas._follow(done(), progress, lambda: None, [])
    assert "31 texts, 9,100 tokens, 25 a second" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["FOLDER"], "expected files, or --random instead of them"),
        (["FOLDER", "TEXTS", "--random"], "expected files, or --random"),
        (["FOLDER", "nowhere.txt"], "nowhere.txt"),
        (["FOLDER", "TEXTS", "--length", "1"], "at least 2 tokens, got 1"),
        (["dates", "TEXTS"], "dates is an encoder-decoder"),
        (["no/such/folder", "TEXTS"], "no/such/folder"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    arguments: list[str], message: str, tiny_folder: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    names = {"FOLDER": str(tiny_folder), "TEXTS": str(texts)}
    given = [names.get(one, one) for one in arguments]
    assert atlas.main([*given, "-o", str(tmp_path / "atlas.parquet")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("out", ["atlas.csv", "nowhere/atlas.parquet"])
def test_where_it_cannot_write_nothing_is_measured(
    out: str, tiny_folder: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert atlas.main([str(tiny_folder), str(texts), "-o", str(tmp_path / out)]) == 2
    assert "expected a file whose name ends in .parquet, in a folder that is there" in capsys.readouterr().err
    assert list(tmp_path.rglob("*atlas*")) == []


def test_a_state_of_other_settings_or_a_damaged_one_is_refused(
    tiny_folder: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture, tiny: Model
) -> None:
    out = tmp_path / "atlas.parquet"
    state = tmp_path / "atlas.parquet.part"
    command = [str(tiny_folder), str(texts), "-o", str(out)]
    settings = {"model": tiny.key, "files": [], "masks": {}, "length": 24}
    atlas_progress.save(state, settings, atlas_progress.new_progress(tiny, 24))
    assert atlas.main(command) == 2
    assert "with other settings (files, length, masks)" in capsys.readouterr().err
    for damaged in (b"", b"unmask atlas 1\n{}", state.read_bytes()[:-40]):
        state.write_bytes(damaged)
        assert atlas.main(command) == 2
        assert "got a damaged file" in capsys.readouterr().err
    state.unlink()
    assert atlas.main(command) == 0


def test_units_may_not_be_left_out(tiny: Model) -> None:
    units = units_of_upload("some.txt", "\n".join(LINES).encode())
    progress = atlas_progress.new_progress(tiny, 24)
    tally = atlas_unit.measure_unit(tiny, units[1], tiny.standard, 24)
    with pytest.raises(ValueError, match="expected unit 0 of source 0, got 1"):
        progress.add(units[1], tally)


def test_without_ray_its_flag_is_a_sentence(
    tiny_folder: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert atlas.main([str(tiny_folder), str(texts), "-o", str(tmp_path / "a.parquet"), "--ray"]) == 2
    assert "--ray needs Ray Data, which is not installed here" in capsys.readouterr().err


class Dataset:
    """Stand-in for the used part of ray.data.Dataset: lazy, one row after another, in order."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = [json.loads(json.dumps(row)) for row in rows]  # only plain data can be sent to a worker

    def map(self, function: Any) -> "Dataset":
        self.function = function
        return self

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        return map(self.function, self.rows)


def test_a_cluster_s_table(tiny_folder: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Ray, which the tests do not require, passes every unit as plain data."""
    options = SimpleNamespace(preserve_order=False)
    begun: list[dict[str, Any]] = []
    ray, data = ModuleType("ray"), ModuleType("ray.data")
    ray.init = lambda **settings: begun.append(settings)  # type: ignore[attr-defined]
    ray.data = data  # type: ignore[attr-defined]
    data.from_items = lambda rows, **_: Dataset(rows)  # type: ignore[attr-defined]
    context = SimpleNamespace(execution_options=options)
    data.DataContext = SimpleNamespace(get_current=lambda: context)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    alone, spread = tmp_path / "alone.parquet", tmp_path / "spread.parquet"
    assert atlas.main([str(tiny_folder), str(texts), "-o", str(alone)]) == 0
    assert atlas.main([str(tiny_folder), str(texts), "-o", str(spread), "--ray", "somewhere:6379"]) == 0
    same_tables(alone, spread)
    assert options.preserve_order
    assert begun[0]["address"] == "somewhere:6379"
