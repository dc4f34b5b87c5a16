"""Questions about numbers, heads, a row of four tokens and a training; and the row itself, against its formulas."""

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from lessons.answer import OTHER, Answer, QuestionCase, QuestionSubject
from lessons.questions import BECOMES, answer
from model import catalog
from model.base import Model
from model.heads.vectors import FourTokens, RunScores, four_token_steps, head_vectors, run_scores
from model.masks import MaskSpec
from viz.lessons.screen import plain
from viz.numbers import number

PETER = "Peter blew his silver whistle twice, and Peter blew his silver"
ONCE = "Once upon a time there was a little girl who lived in a house by the sea."
AGAIN = "qZ7kV3mXbR qZ7kV3mXb"
ROW = FourTokens((2.0, 1.0), ((1, 0), (1, 2), (0, 1), (2, 1)), ((1, 0), (0, 1), (2, 2), (-1, 1)), blocked=(3,))
ROW_SCORES = np.array([2, 4, 1, 5]) / 2**0.5
Ask = Callable[..., Answer]


@pytest.fixture
def ask(story: Model) -> Ask:
    """Return a function that answers a question about a text whose masks are compared with the standard ones."""

    def answer_of(kind: str, text: str = PETER, masks: MaskSpec | None = None, **about: object) -> Answer:
        batch = story.encode(text.split("\n"), "right")
        head = about.pop("head", (0, 0))
        assert isinstance(head, tuple)
        subject = replace(QuestionSubject(kind, 0, *head), **about)
        return answer(story, story.run(batch, masks), story.run(batch), "story", subject)

    return answer_of


def right(found: Answer) -> list[str]:
    return [plain(found.choices[index]) for index in sorted(found.right)]


def test_a_row_by_hand() -> None:
    steps = four_token_steps(ROW)
    assert steps.raw.tolist() == [2, 4, 1, 5]
    assert steps.scaled == pytest.approx(ROW_SCORES)
    exps = np.exp(ROW_SCORES[:3])
    assert steps.weights == pytest.approx([*exps / exps.sum(), 0])
    assert steps.output == pytest.approx(
        [steps.weights[0] + 2 * steps.weights[2], steps.weights[1] + 2 * steps.weights[2]]
    )


@pytest.mark.parametrize(
    ("change", "becomes"),
    [
        ({}, [0]), ({"add": "-1e4", "precision": "float16"}, [0]), ({"add": "-10"}, [2]),
        ({"add": "", "then": "multiply"}, [1]), ({"sink": 3.0}, [1]), ({"sink": 3.0, "add": "-10"}, [1, 2]),
        ({"blocked": (0, 1, 2, 3)}, [3]), ({"blocked": (0, 1, 2, 3), "then": "zero"}, [1, 4]),
        ({"blocked": (0, 1, 2, 3), "add": "-1e4", "precision": "float16"}, [2]),
    ],
)  # fmt: skip
def test_what_becomes_of_a_row(ask: Ask, change: dict[str, object], becomes: list[int]) -> None:
    assert right(ask("becomes", numbers=replace(ROW, **change))) == [BECOMES[one] for one in becomes]


def test_the_weight_that_a_blocked_key_gets_is_named_however_small(ask: Ask) -> None:
    text = plain(ask("becomes", numbers=replace(ROW, add="-10", sink=3.0)).why)
    exps = np.exp([*ROW_SCORES[:3], ROW_SCORES[3] - 10, 3])
    assert text.endswith(f"the blocked key “down” gets {number(exps[3] / exps.sum())}.")


@pytest.mark.parametrize(("sink", "equals"), [(None, "="), (0.5, "="), (1.5, "≈"), (3.0, "≈")])
def test_the_sum_of_a_row_s_weights_holds_as_it_is_printed(ask: Ask, sink: float | None, equals: str) -> None:
    text = plain(ask("becomes", numbers=replace(ROW, sink=sink)).why)
    terms, total = re.fullmatch(rf"The weights add up to (.*) {equals} (.*)\.", text).groups()
    assert (sum(map(Decimal, terms.split(" + "))) == Decimal(total)) == (equals == "=")


def test_counts_of_cells_have_separators(ask: Ask) -> None:
    masks = MaskSpec(), MaskSpec(causal=False)
    sentence = plain(ask("picture", text="a " * 60, among=masks).why)
    tokens = int(re.findall(r"of ([\d,]+) cells", sentence)[0].replace(",", "")) ** 0.5
    assert re.search(rf"It blocks {tokens * (tokens - 1) / 2:,.0f} of {tokens**2:,.0f} cells", sentence)
    assert tokens > 50


def test_minus_ten_thousand_in_float16_makes_a_blocked_row_uniform() -> None:
    steps = four_token_steps(replace(ROW, blocked=(0, 1, 2, 3), add="-1e4", precision="float16"))
    assert steps.weights.tolist() == [0.25] * 4


@pytest.mark.parametrize("wrong", [{"query": (1.0,)}, {"keys": ROW.keys[:3]}, {"query": (float("nan"), 1.0)}])
def test_what_is_no_row_of_four_tokens(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expected (query|keys)"):
        four_token_steps(replace(ROW, **wrong))


def test_numbers_of_a_row_and_how_near_is_right(ask: Ask) -> None:
    found = ask("number", numbers=ROW, of="score", key=1, within=0.05)
    assert right(found) == ["2.83"]
    assert found.number == pytest.approx(4 / 2**0.5)
    (index,) = found.right
    assert [found.typed(number) for number in (2.8, 2.87, 2.77, -2.83)] == [index, index, OTHER, OTHER]
    assert right(ask("number", numbers=ROW, of="weight", key=0)) == ["0.18"]
    assert right(ask("number", numbers=ROW, of="output")) == ["0.35"]
    numbers = [float(plain(one)) for one in found.choices]
    assert min(np.diff(numbers)) > 2 * found.within  # a typed number matches at most one choice


def test_on_how_many_texts_the_loss_falls(ask: Ask) -> None:
    little = "When Plutus approached him, he cast his eyes upon the ground, and turned away "
    little += "and pretended not to see him."
    texts = "\n".join([ONCE, PETER, "The cat saw the dog, and the dog saw the cat.", little])
    found = ask("how_many", texts, MaskSpec(causal=False), within=0)
    runs = [ask("loss", text, MaskSpec(causal=False)) for text in texts.split("\n")]
    changes = [run.why.values["after"] - run.why.values["before"] for run in runs]
    assert runs[-1].right == {1}, "a small fall is a fall"
    assert found.number == sum(change < 0 for change in changes)
    assert 0 < found.number < 4
    assert -0.05 < changes[-1] < 0


@pytest.mark.parametrize(("key", "share"), [(5, "More than half"), (4, "Up to 10%")])
def test_how_much_a_key_gets(ask: Ask, key: int, share: str) -> None:
    assert right(ask("weight", head=(4, 0), query=13, key=key)) == [share]
    assert right(ask("weight", head=(4, 0), query=3, key=key)) == ["None at all"]  # the key is blocked


@pytest.mark.parametrize(("pattern", "head"), [("induction", "L4 H0"), ("previous", "L0 H3"), ("first", "L5 H2")])
def test_which_head(ask: Ask, pattern: str, head: str) -> None:
    found = ask("which_head", pattern=pattern)
    assert right(found) == [head]
    assert len({plain(one) for one in found.choices}) == 4
    with pytest.raises(ValueError, match="one head follows the pattern more than every other"):
        ask("which_head", masks=MaskSpec(sliding=1), pattern="previous")  # 0% in every head


@pytest.mark.parametrize(("head", "length"), [((5, 2), "Less than half as long"), ((1, 0), "As long, or longer")])
def test_how_long_the_first_value_is(ask: Ask, story: Model, head: tuple[int, int], length: str) -> None:
    found = head_vectors(story.run(story.encode([ONCE])), 0, *head)
    norms = found.norms
    assert (found.blocked == np.triu(np.ones_like(found.weights), 1)).all()
    assert (norms[0] / norms[1:].mean() < 0.5) == (length == "Less than half as long")
    assert right(ask("norm", ONCE, head=head)) == [length]


SERIES = tuple(
    (step, RunScores(loss, previous, induction))
    for step, loss, previous, induction in
    [(0, 5.0, 0.1, 0.05), (10, 4.9, 0.2, 0.06), (20, 4.8, 0.3, 0.2), (30, 1.0, 0.5, 0.6), (90, 0.0, 0.9, 0.9)]
)  # fmt: skip


def test_what_comes_first_and_where_the_loss_falls_fastest(ask: Ask) -> None:
    assert right(ask("earlier", series=SERIES)) == ["The previous-token score"]
    swapped = tuple((step, replace(one, previous=one.induction, induction=one.previous)) for step, one in SERIES)
    assert right(ask("earlier", series=swapped)) == ["The induction score"]
    together = tuple((step, replace(one, previous=one.induction)) for step, one in SERIES)
    assert right(ask("earlier", series=together)) == ["Both at the same step"]
    never = tuple((step, replace(one, induction=0.0)) for step, one in SERIES)
    with pytest.raises(ValueError, match="both scores rise"):
        ask("earlier", series=never)
    assert right(ask("steepest", series=SERIES)) == ["From step 20 to step 30"]
    losses = zip([*range(0, 80, 10), 500], [5.0, 5.0, 5.0, 5.0, 5.0, 4.5, 4.0, 1.0, 1.0], strict=True)
    long_end = ask("steepest", series=tuple((step, RunScores(loss, 0.0, 0.0)) for step, loss in losses))
    assert right(long_end) == ["From step 60 to step 500"]  # although the loss is flat in most of it
    assert "from step 60 to step 70: by 3.00 nats" in plain(long_end.why)
    with pytest.raises(ValueError, match="show: training"):
        ask("steepest")


def test_the_scores_of_a_run() -> None:
    model = catalog.load("induction")
    batch = model.encode([AGAIN])
    found = run_scores(model.run(batch), 0)
    losses = model.run(batch).losses(0)
    assert found.loss == pytest.approx(float(losses[13:].mean()), abs=1e-5)  # the second occurrence begins at 12
    assert found.induction > 0.9
    with pytest.raises(ValueError, match="a part occurs again three or more tokens later"):
        run_scores(model.run(model.encode(["abcdef"])), 0)


@pytest.mark.parametrize("within", [0, 0.001])
def test_a_number_to_the_two_places_that_are_asked_for_is_right(ask: Ask, within: float) -> None:
    found = ask("number", numbers=ROW, of="score", key=1, within=within)
    assert found.typed(round(found.number, 2)) in found.right
    assert found.typed(round(found.number, 2) + 0.02) not in found.right


@pytest.mark.parametrize(
    ("total", "falls", "within", "offered"),
    [(4, 2, 1, [0, 2, 4]), (3, 1, 1, [1, 3]), (3, 2, 1, [0, 2]), (8, 4, 2, [0, 4, 8]), (12, 3, 1, [0, 3, 6, 9])],
)
def test_a_number_that_counts_as_wrong_is_offered_too(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, total: int, falls: int, within: float, offered: list[int]
) -> None:
    changes = np.array([-1.0] * falls + [1.0] * (total - falls))
    monkeypatch.setattr(QuestionCase, "changes", lambda _: changes)
    found = ask("how_many", within=within)
    assert [int(plain(one)) for one in found.choices] == offered
    assert right(found) == [str(falls)]


def test_a_number_beside_which_no_other_is_wrong_is_not_asked_for(ask: Ask) -> None:
    with pytest.raises(ValueError, match="other numbers that count as wrong"):
        ask("number", numbers=ROW, of="weight", within=9)


def test_the_score_of_a_blocked_key_is_that_of_its_table(ask: Ask) -> None:
    with pytest.raises(ValueError, match="expected a number, got −∞"):
        ask("number", numbers=ROW, of="score", key=3)
    with pytest.raises(ValueError, match="expected a number, got NaN"):
        ask("number", numbers=replace(ROW, blocked=(0, 1, 2, 3)), of="weight")
    assert right(ask("number", numbers=replace(ROW, add="-10"), of="score", key=3)) == ["−6.46"]  # 5 / √2 − 10
