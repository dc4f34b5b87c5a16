"""Cached figures: each is drawn once, and again only if an argument differs."""

import weakref
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from model.heads.view import HeadView, cropped
from serving.result_cache import ResultCache
from ui import results
from ui.results import cached_figure
from viz.head import head_figure
from viz.heatmap import CachedFigure, figure

calls: list[object] = []


@dataclass(frozen=True, eq=False)
class Numbers:
    values: np.ndarray
    names: list[str]


def total(numbers: Numbers, more: float = 0.0) -> str:
    calls.append(numbers)
    return f"{numbers.names}: {numbers.values.sum() + more}"


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> ResultCache:
    """Use an empty result cache of 1 MB for each test."""
    calls.clear()
    memory = ResultCache(10**6)
    monkeypatch.setattr(results, "result_cache", lambda: memory)
    return memory


def test_the_same_array_is_drawn_once_and_another_of_the_same_numbers_anew() -> None:
    values = np.array([2.0, 3, 5])
    first = Numbers(values, ["a"])
    assert cached_figure(total, first) == cached_figure(total, Numbers(values, ["a"])) == "['a']: 10.0"
    assert len(calls) == 1
    assert cached_figure(total, Numbers(values.copy(), ["a"])) == "['a']: 10.0"
    assert len(calls) == 2


def test_a_part_of_an_array_is_that_part_whenever_it_is_cut() -> None:
    values = np.array([2.0, 3, 5, 7])
    whole, part = Numbers(values, []), [Numbers(values[:2], []) for _ in range(2)]
    found = [cached_figure(total, one) for one in (whole, *part, Numbers(values[::2], []), Numbers(values[1:3], []))]
    assert found == ["[]: 17.0", "[]: 5.0", "[]: 5.0", "[]: 7.0", "[]: 8.0"]
    assert len(calls) == 4


def test_parts_of_a_tensor_are_the_same_whenever_they_are_cut() -> None:
    table = torch.tensor([[2.0, 3], [5, 7]])
    assert [cached_figure(total, Numbers(table[row].numpy(), [])) for row in (1, 1, 0)] == [
        "[]: 12.0",
        "[]: 12.0",
        "[]: 5.0",
    ]
    assert len(calls) == 2


def test_every_argument_counts() -> None:
    numbers = Numbers(np.array([2.0]), ["a"])
    variants = (numbers, replace(numbers, names=["b"]), replace(numbers, names=[]))
    found = {cached_figure(total, one, more) for one in variants for more in (0.0, 1.0)} | {
        cached_figure(total, numbers, more=2.0)
    }
    assert len(found) == 7


def test_what_is_drawn_holds_no_array(memory: ResultCache) -> None:
    """The cache would not count it: of eight texts that are no longer shown only the pictures stay in memory."""
    left = []
    for number in range(8):
        values = np.full(1000, float(number))
        left.append(weakref.ref(values))
        cached_figure(total, Numbers(values[1:], []))
        calls.clear()
        del values
    assert not any(one() is not None for one in left)
    fresh = [np.full(1000, float(number)) for number in range(8, 16)]  # at least one has the address of a freed one
    assert [cached_figure(total, Numbers(one[1:], [])) for one in fresh] == [f"[]: {one[1:].sum()}" for one in fresh]


def test_no_number_is_the_same_as_no_number() -> None:
    numbers = Numbers(np.array([2.0]), [])
    assert cached_figure(total, numbers, float("nan")) == cached_figure(total, numbers, float("nan"))
    assert len(calls) == 1


def test_a_picture_shown_again_is_the_same_plain_data(memory: ResultCache) -> None:
    weights = np.tril(np.ones((3, 3), np.float32))
    view = HeadView(weights, weights, {"causal": weights == 0}, list("abc"), list("abc"))
    pictures = [cached_figure(head_figure, cropped(view, (0, 2), (0, 3)), dark=False) for _ in range(2)]
    assert pictures[0] is pictures[1]
    assert pictures[0].to_dict() is pictures[1].to_dict()
    assert memory.nbytes() >= len(pictures[0].to_json())
    assert cached_figure(head_figure, cropped(view, (0, 3), (0, 3)), dark=False) is not pictures[0]


def test_a_pictures_plain_data_is_plotlys() -> None:
    parts: tuple = ([{"type": "scatter", "y": np.array([2, 3, 5])}], {"title": {"text": "primes"}})
    picture = figure(*parts)
    assert isinstance(picture, CachedFigure)
    assert picture.to_dict()["layout"]["title"]["text"] == "primes"
    assert picture.to_dict()["data"][0]["y"] == {"dtype": "i1", "bdata": "AgMF"}
