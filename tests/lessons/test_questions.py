"""Questions of lessons: the right answer is computed from the run, so each kind is asked of runs that differ in it."""

from dataclasses import replace

import pytest

from lessons.questions import HEAD_PATTERNS, KINDS, Answer, QuestionSubject, answer
from model.base import Model
from model.cross_attention import dates
from model.masks import MaskSpec, Stroke
from viz.lessons.screen import plain

ONCE = "Once upon a time there was a little girl who lived in a house by the sea."
PETER = "Peter blew his silver whistle twice, and Peter blew his silver"
CAT = "The cat saw the dog, and the dog saw the cat."
TWO = "Once upon a time\nThe little girl ran down the hill."
FREE, CAUSAL, PADDING = MaskSpec(causal=False, padding=False), MaskSpec(padding=False), MaskSpec(causal=False)
PAIRS = (MaskSpec(), CAUSAL, PADDING, FREE)


def ask(
    model: Model, kind: str, text: str, masks: MaskSpec | None = None, *, head: tuple[int, int] = (0, 0),
    query: int | None = None, beside: tuple[str | None, MaskSpec | None] = (None, None), pad: str = "left",
    among: tuple[MaskSpec, ...] = (),
) -> Answer:  # fmt: skip
    both = (text, masks), (beside[0] or text, beside[1])
    runs = [model.run(model.encode(some.split("\n"), pad), spec) for some, spec in both]
    return answer(model, *runs, model.name, QuestionSubject(kind, 0, *head, query, among))


def right(found: Answer) -> list[object]:
    """Return the text of each right choice: its sentence, or the value of its placeholder if it has one."""
    choices = [found.choices[index] for index in sorted(found.right)]
    return [next(iter(choice.values.values()), choice.sentence) for choice in choices]


@pytest.mark.parametrize(
    ("text", "masks", "move"),
    [(ONCE, FREE, "goes up"), (CAT, FREE, "goes down"), (ONCE, None, "changes by less than 0.05 nats/token")],
)
def test_the_loss_falls_rises_and_stays(story: Model, text: str, masks: MaskSpec | None, move: str) -> None:
    found = ask(story, "loss", text, masks)
    assert right(found) == [f"It {move}."]
    before, after = found.why.values["before"], found.why.values["after"]
    assert {"goes up": after > before + 0.05, "goes down": after < before - 0.05}.get(move, after == before)
    assert found.why.sentence.startswith(f"The mean loss {move}")


@pytest.mark.parametrize(
    ("texts", "right_one", "counts"),
    [((CAT, CAT, ONCE), "It goes down on most of them.", (2, 1)),
     ((CAT, ONCE, ONCE), "It goes up on most of them.", (1, 2)), ((CAT, CAT, ONCE, ONCE), "Neither.", (2, 2))],
)  # fmt: skip
def test_the_move_on_most_texts(story: Model, texts: tuple[str, ...], right_one: str, counts: tuple[int, int]) -> None:
    found = ask(story, "texts", "\n".join(texts), PADDING, pad="right")
    assert right(found) == [right_one]
    values = found.why.values
    assert (values["falls"], values["rises"], values["total"]) == (*counts, len(texts))
    means = [float(ask(story, "loss", text, PADDING).why.values["after"]) for text in texts]
    before = [float(ask(story, "loss", text).why.values["after"]) for text in texts]
    assert values["change"] == pytest.approx((sum(means) - sum(before)) / len(texts), abs=1e-4)


def test_the_model_with_the_lower_loss(story: Model) -> None:
    """The story model without its masks has a lower loss than itself on one text, a higher loss on the other."""
    names = [ask(story, "lower", text, FREE).right for text in (CAT, ONCE)]
    assert names == [frozenset([0]), frozenset([1])]
    found = ask(story, "lower", CAT, FREE)
    assert [choice.sentence for choice in found.choices[:2]] == ["now", "before"]
    assert right(ask(story, "lower", ONCE)) == ["Neither: they differ by less than 0.05 nats/token."]


@pytest.mark.parametrize(("head", "query", "position"), [((0, 3), 4, 3), ((4, 0), 12, 4), ((5, 2), 12, 0)])
def test_the_token_looked_at_most(story: Model, head: tuple[int, int], query: int, position: int) -> None:
    found = ask(story, "looks", PETER, head=head, query=query)
    assert right(found) == [position]
    weights = story.run(story.encode([PETER])).weights(*head)[query]
    assert found.why.values["share"] == pytest.approx(float(weights[position]))
    assert len({str(choice.values) for choice in found.choices}) == 4


@pytest.mark.parametrize(
    ("masks", "query", "count"), [(None, 8, 5), (None, 2, 0), (CAUSAL, 8, 9), (PADDING, 5, 5), (FREE, 5, 9)]
)
def test_open_cells_are_counted_in_the_mask(story: Model, masks: MaskSpec | None, query: int, count: int) -> None:
    found = ask(story, "sees", TWO, masks, query=query)  # 4 padding tokens, then 5 tokens
    assert right(found) == [count]
    assert (found.why.values["count"], found.why.values["blocked"]) == (count, 9 - count)


def test_the_likeliest_next_token_comes_from_the_run_asked_about(story: Model) -> None:
    run = story.run(story.encode([ONCE]))
    for query in (3, 16):
        found = ask(story, "next", ONCE, query=query)
        assert right(found) == [story.label(int(run.next_token(0, query).argmax()))]


def test_the_next_token_is_asked_beside_a_shorter_text(story: Model) -> None:
    found = ask(story, "next", ONCE, query=16, beside=(CAT, None))
    assert right(found) == right(ask(story, "next", ONCE, query=16))


@pytest.mark.parametrize(
    ("masks", "pad", "changes"), [(CAUSAL, "right", False), (CAUSAL, "left", True), (FREE, "right", True)]
)
def test_a_row_changes_where_a_mask_reaches_it(story: Model, masks: MaskSpec, pad: str, changes: bool) -> None:
    query = 4 if pad == "right" else 8
    found = ask(story, "row", TWO, masks, query=query, pad=pad, head=(0, 3))
    assert right(found) == ["Some of them change." if changes else "None of them changes."]
    assert (found.why.values["most"] > 1e-5) == changes


@pytest.mark.parametrize(
    ("head", "pattern"), [((5, 2), "first"), ((0, 3), "previous"), ((4, 1), "itself"), ((4, 0), "induction")]
)
def test_the_pattern_is_the_largest_of_the_measured_shares(story: Model, head: tuple[int, int], pattern: str) -> None:
    assert right(ask(story, "habit", PETER, head=head)) == [HEAD_PATTERNS[pattern][0]]


@pytest.mark.parametrize(
    ("kind", "masks", "head", "share"),
    [("future", None, (0, 0), 0), ("future", PADDING, (5, 2), 1), ("future", PADDING, (3, 5), 2),
     ("padding", None, (0, 3), 0), ("padding", CAUSAL, (5, 2), 1), ("padding", CAUSAL, (5, 0), 2),
     ("padding", CAUSAL, (1, 3), 3)],
)  # fmt: skip
def test_shares_fall_in_place(
    story: Model, kind: str, masks: MaskSpec | None, head: tuple[int, int], share: int
) -> None:
    found = ask(story, kind, TWO, masks, head=head)
    assert found.right == {share}
    low, high = (0.0, 0.0, 0.1, 0.5, 1.0)[share : share + 2]
    assert found.why.values["share"] == 0 if share == 0 else low < found.why.values["share"] <= high


@pytest.mark.parametrize("masks", PAIRS)
def test_the_masks_of_a_picture_are_those_that_block_its_cells(story: Model, masks: MaskSpec) -> None:
    assert ask(story, "picture", TWO, masks, among=PAIRS).right == {PAIRS.index(masks)}


def test_two_masks_that_block_the_same_cells_are_both_right(story: Model) -> None:
    options = (MaskSpec(), replace(MaskSpec(), sliding=99), FREE)
    assert ask(story, "picture", TWO, among=options).right == {0, 1}


@pytest.mark.parametrize(
    ("kind", "more", "sentence"),
    [
        ("looks", {"query": 99}, "a query from 0 to 13, got 99"),
        ("looks", {"query": 0}, "sees two tokens or more, got one that sees 1"),
        ("weight", {"query": 0}, "sees two tokens or more, got one that sees 1"),  # 100%, whatever the head
        ("padding", {"masks": FREE}, "expected a row with padding, .* got a row without"),
        ("row", {"beside": (ONCE, None)}, "two runs with the same number of tokens, got 14 and 19"),
        ("picture", {"among": (FREE, CAUSAL)}, "at least one made the picture"),
    ],
)
def test_what_cannot_be_asked_of_a_run_is_said(story: Model, kind: str, more: dict, sentence: str) -> None:
    text, masks = (TWO, PADDING) if kind == "picture" else (PETER, None)
    with pytest.raises(ValueError, match=sentence):
        ask(story, kind, text, **{"masks": masks} | more)


def test_every_kind_is_tested_here() -> None:
    assert set(KINDS) == {
        "loss", "texts", "lower", "looks", "sees", "next", "row", "habit", "future", "padding", "picture",
        "where",  # in test_image_steps.py
        # in test_number_questions.py
        "how_many", "weight", "which_head", "norm", "number", "becomes", "earlier", "steepest",
    }  # fmt: skip


def test_a_picture_s_masks_are_those_of_the_head_that_is_shown(story: Model) -> None:
    """The causal mask is off in layer 3 alone; the head is in layer 0."""
    other = MaskSpec(causal=False, layers=(3,))
    found = ask(story, "picture", ONCE, other, head=(0, 3), among=(other, MaskSpec(causal=False)))
    assert [plain(found.choices[index]) for index in (*found.right,)] == ["causal mask + padding mask"]
    assert "causal mask + padding mask" in plain(found.why)
    assert plain(found.choices[1]) == "padding mask"


@pytest.mark.parametrize("kind", ["habit", "future"])
def test_what_earlier_and_later_mean_is_not_asked_across_texts(kind: str) -> None:
    model = dates.load()
    trace = model.run(model.encode(["3 May 2021"], targets=["2021-05-03"])).select("cross")
    with pytest.raises(ValueError, match="an attention of a text to itself"):
        answer(model, trace, trace, model.name, QuestionSubject(kind, 0, 0, 3))


def test_padding_is_asked_of_a_text_s_source_too() -> None:
    model = dates.load()
    texts, targets = ["3 May 2021", "the 3rd of May 2021"], ["2021-05-03"] * 2
    trace = model.run(model.encode(texts, targets=targets)).select("cross")
    assert right(answer(model, trace, trace, model.name, QuestionSubject("padding", 0, 0, 3)))


@pytest.mark.parametrize("kind", ["habit", "future", "norm"])
def test_a_text_of_one_token_is_not_compared_with_itself(kind: str) -> None:
    model = dates.load()
    trace = model.run(model.encode(["2"])).select("encoder")
    with pytest.raises(ValueError, match="expected texts of at least two tokens"):
        answer(model, trace, trace, model.name, QuestionSubject(kind, 0, 0, 0))


def test_a_head_that_attends_to_nothing_has_no_pattern(story: Model) -> None:
    masks = MaskSpec(drawn=(Stroke("block", 0, 0, 99, 99),))
    with pytest.raises(ValueError, match="every cell is blocked"):
        ask(story, "habit", CAT, masks)
