"""Tests that an atlas measured in parallel, one thread per unit, equals one measured unit by unit."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from model.atlas import progress as atlas_progress
from model.atlas.progress import AtlasProgress
from model.atlas.unit import Unit, measure_unit, units_of_text
from model.base import Model
from serving import machine

LENGTH, MANY = 24, 3
LINES = [f"the cat {number} sat on the mat, and the mat sat still" for number in range(210)]  # seven units


@pytest.fixture
def units() -> list[Unit]:
    return units_of_text("\n".join(LINES))


@pytest.fixture
def on_many_cores() -> Iterator[Callable]:
    """Yield a function that runs a call in a thread with MANY torch threads."""
    own = torch.get_num_threads()
    with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(MANY,)) as pool:
        yield lambda call: pool.submit(call).result()
        pool.submit(torch.set_num_threads, own).result()


def one_by_one(model: Model, units: list[Unit]) -> AtlasProgress:
    progress = atlas_progress.new_progress(model, LENGTH)
    with machine.one_thread():
        list(
            atlas_progress.measured(
                units, progress, lambda unit, bar: measure_unit(model, unit, model.standard, LENGTH, bar)
            )
        )
    return progress


def side_by_side(model: Model, units: list[Unit], progress: AtlasProgress) -> Iterator[Unit]:
    return atlas_progress.measured_in_threads(model, units, model.standard, LENGTH, progress)


def test_it_is_the_same_in_the_same_order(tiny: Model, units: list[Unit], on_many_cores: Callable) -> None:
    expected, progress = one_by_one(tiny, units), atlas_progress.new_progress(tiny, LENGTH)
    assert on_many_cores(lambda: list(side_by_side(tiny, units, progress))) == units
    assert progress.tally.to_bytes() == expected.tally.to_bytes()
    assert progress.next_unit == expected.next_unit


def test_several_are_in_hand_with_one_thread_each(
    tiny: Model, units: list[Unit], on_many_cores: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, counted = threading.Barrier(MANY), []

    def measure(model: Model, unit: Unit, *rest: Any) -> Any:
        counted.append(torch.get_num_threads())
        if unit.number < MANY:
            together.wait(60)  # raises if fewer units are measured at once
        return measure_unit(model, unit, *rest)

    monkeypatch.setattr(atlas_progress, "measure_unit", measure)
    on_many_cores(lambda: list(side_by_side(tiny, units, atlas_progress.new_progress(tiny, LENGTH))))
    assert counted == [1] * len(units)


def test_whoever_stops_goes_on_from_there(tiny: Model, units: list[Unit], on_many_cores: Callable) -> None:
    progress = atlas_progress.new_progress(tiny, LENGTH)

    def begin() -> list[int]:
        first = side_by_side(tiny, units, progress)
        numbers = [next(first).number, next(first).number]
        first.close()
        return numbers

    assert on_many_cores(begin) == [0, 1]
    assert progress.next_unit == {0: 2}
    assert progress.tally.texts == sum(len(unit) for unit in units[:2])
    left = on_many_cores(lambda: list(side_by_side(tiny, units, progress)))
    assert [unit.number for unit in left] == [2, 3, 4, 5, 6]
    assert progress.tally.to_bytes() == one_by_one(tiny, units).tally.to_bytes()


def test_what_goes_wrong_in_a_thread_is_said_by_the_caller(
    tiny: Model, units: list[Unit], on_many_cores: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(model: Model, unit: Unit, *rest: Any) -> Any:
        if unit.number == 1:
            raise ValueError("a unit that cannot be measured")
        return measure_unit(model, unit, *rest)

    monkeypatch.setattr(atlas_progress, "measure_unit", measure)
    progress = atlas_progress.new_progress(tiny, LENGTH)
    with pytest.raises(ValueError, match="a unit that cannot be measured"):
        on_many_cores(lambda: list(side_by_side(tiny, units, progress)))
    assert progress.next_unit == {0: 1}


def test_a_large_model_is_given_all_threads(tiny: Model, units: list[Unit], monkeypatch: pytest.MonkeyPatch) -> None:
    where = []

    def measure(model: Model, unit: Unit, *rest: Any) -> Any:
        where.append(threading.current_thread())
        return measure_unit(model, unit, *rest)

    monkeypatch.setattr(atlas_progress, "measure_unit", measure)
    monkeypatch.setattr(machine, "SMALL_MODEL_PARAMETERS", 1)
    list(side_by_side(tiny, units[:2], atlas_progress.new_progress(tiny, LENGTH)))
    assert where == [threading.current_thread()] * 2
