"""Tests of the atlas's measures on weight matrices small enough to calculate them, masks included."""

import math

import pytest
import torch
from torch import Tensor

from model import masks
from model.atlas.batch import BatchFacts, softmax2
from model.atlas.result import NAMES
from model.text import TokenBatch

IDS = (7, 5, 11, 7, 5)  # the fourth token repeats the first, the fifth the second
COMMA = 11
WEIGHTS = (
    (1.0, 0.0, 0.0, 0.0, 0.0),
    (0.75, 0.25, 0.0, 0.0, 0.0),
    (0.5, 0.25, 0.25, 0.0, 0.0),
    (0.125, 0.5, 0.25, 0.125, 0.0),
    (0.0, 0.25, 0.5, 0.125, 0.125),
)
CAUSAL = masks.causal(5, 5)[None, None]
OPEN = torch.ones(1, 1, 3, 3, dtype=torch.bool)


def facts(*rows: tuple[int, ...], comma: int = COMMA) -> BatchFacts:
    """Return the facts of a batch of rows padded on the right."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    keep = torch.tensor([[position < len(row) for position in range(longest)] for row in rows])
    return BatchFacts(TokenBatch(ids, keep, ((),) * len(rows)), ids == comma)


def measured(about: BatchFacts, weights: Tensor, allowed: Tensor) -> dict[str, list[float]]:
    """Return each measure's values, one for each query of the first row and head where the measure counts."""
    whole = slice(0, weights.shape[-2])
    values = about.values(weights, whole, ahead=allowed is OPEN)[:, 0, 0]
    counts = about.counts(allowed, whole)[:, 0]
    return {name: values[index][counts[index]].tolist() for index, name in enumerate(NAMES)}


def test_every_measure_under_a_causal_mask() -> None:
    """Query 0 sees one key and counts nowhere; `previous` also leaves out query 1, which follows the first token."""
    found = measured(facts(IDS), torch.tensor(WEIGHTS)[None, None], CAUSAL)
    assert found["previous"] == [0.25, 0.25, 0.125]
    assert found["first"] == [0.75, 0.5, 0.125, 0.0]
    assert found["same"] == [0.25, 0.25, 0.125, 0.125]
    assert found["duplicate"] == [0.125, 0.25]  # 7 on the earlier 7, 5 on the earlier 5
    assert found["induction"] == [0.5, 0.5]  # 7 on the 5 after the earlier 7, 5 on the 11 after the earlier 5
    assert found["punctuation"] == [0.25, 0.25, 0.5]  # query 1 sees no punctuation
    assert found["leak"] == [0.0] * 4
    assert found["peak"] == [0.25, 0.25, 0.5, 0.5]
    assert found["distance"] == pytest.approx([0.75, 1.25, 1.625, 1.875])
    assert found["entropy"] == pytest.approx([0.811278, 1.5, 1.75, 1.75])


def test_without_a_mask_later_tokens_count_and_distances_go_both_ways() -> None:
    weights = torch.tensor([[0.25, 0.0, 0.75], [0.5, 0.25, 0.25], [0.125, 0.375, 0.5]])[None, None]
    found = measured(facts((7, 5, 11)), weights, OPEN)
    assert found["leak"] == [0.75, 0.25, 0.0]
    assert found["distance"] == pytest.approx([1.5, 0.75, 0.625])
    assert found["first"] == [0.5, 0.125]  # query 0 is left out
    assert found["previous"] == [0.375]
    assert found["same"] == [0.25, 0.25, 0.5]


def test_a_cell_that_a_mask_blocks_is_asked_nothing() -> None:
    """Blocked are the third query's previous token and the fourth query's repeated token with the one after it."""
    allowed = CAUSAL.clone()
    allowed[0, 0, 2, 1] = False
    allowed[0, 0, 3, 0] = allowed[0, 0, 3, 1] = False
    weights = torch.tensor(WEIGHTS)[None, None].masked_fill(~allowed, 0)
    found = measured(facts(IDS), weights, allowed)
    assert found["previous"] == [0.25, 0.125]
    assert found["first"] == [0.75, 0.5, 0.0]
    assert found["duplicate"] == [0.25]
    assert found["induction"] == [0.5]
    assert len(found["entropy"]) == 4


def test_a_query_with_one_open_cell_has_no_choice() -> None:
    allowed = torch.eye(5, dtype=torch.bool)[None, None].clone()
    allowed[0, 0, 4, 2] = True
    found = measured(facts(IDS), torch.eye(5)[None, None], allowed)
    assert found["same"] == [1.0]
    assert found["previous"] == []


def test_padding_neither_looks_nor_is_looked_at() -> None:
    """In a batch of two rows of different lengths the shorter row's measures are those of the row alone."""
    short, long = (3, 5, 3), (7, 5, 11, 7, 5)
    keep = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    allowed = CAUSAL & keep[:, None, None]
    scores = torch.randn(1, 1, 5, 5, generator=torch.Generator().manual_seed(3)).expand(2, 1, 5, 5)
    together = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    alone = scores[:1, :, :3, :3].masked_fill(~CAUSAL[..., :3, :3], -torch.inf).softmax(-1)
    found = measured(facts(short, long), together, allowed)
    expected = measured(facts(short), alone, CAUSAL[..., :3, :3])
    assert {name: len(values) for name, values in found.items()} == {n: len(v) for n, v in expected.items()}
    for name in NAMES:
        assert found[name] == pytest.approx(expected[name], abs=1e-6), name


@pytest.mark.parametrize("begin", [0, 3, 8])
def test_a_block_of_queries_is_measured_as_it_is_among_all(begin: int) -> None:
    generator = torch.Generator().manual_seed(5)
    ids = tuple(torch.randint(1, 6, (13,), generator=generator).tolist())
    allowed = masks.causal(13, 13)[None, None]
    weights = torch.randn(1, 2, 13, 13, generator=generator).masked_fill(~allowed, -torch.inf).softmax(-1)
    about, some = facts(ids, comma=3), slice(begin, begin + 5)
    whole = about.values(weights, slice(0, 13), ahead=False)[..., some]
    assert torch.allclose(about.values(weights[:, :, some, : begin + 5], some, ahead=False), whole, atol=1e-5)
    counted = about.counts(allowed, slice(0, 13))[..., some]
    assert torch.equal(about.counts(allowed, some), counted)


def test_rows_that_a_sink_takes_from_keep_their_distance() -> None:
    """Where a row's weights sum to 1/2, distance and entropy are those of the weights divided by their sum."""
    halved = torch.tensor(WEIGHTS)[None, None] / 2
    found = measured(facts(IDS), halved, CAUSAL)
    scores, choice = torch.tensor([[[[2.0, 1, 0]] * 3]]), torch.tensor([[False, True, True]])
    weights, known = softmax2(scores, None, choice, torch.tensor([3.0]))
    assert weights[0, 0].sum(-1).tolist() == pytest.approx([0, 7 / 15, 7 / 15])
    assert known["entropy"][0, 0].tolist() == pytest.approx([0, 1.378783, 1.378783])
    assert found["entropy"] == pytest.approx([0.811278, 1.5, 1.75, 1.75])
    assert found["distance"] == pytest.approx([0.75, 1.25, 1.625, 1.875])
    assert not any(math.isnan(one) for values in found.values() for one in values)
