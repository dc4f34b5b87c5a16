"""The Why causal page without a browser: every number in its sentences, its choices, odd texts."""

import html
import re
from typing import Any

import numpy as np
import pytest

from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS, Combination, TwinPair
from tests.pages.page import array
from tests.pages.why_causal import TEXT, WhyCausal
from ui import results
from ui.why_causal import steps
from viz.numbers import percent
from viz.why_causal.charts import nats

WITH_WITH, WITH_WITHOUT, WITHOUT_WITH, WITHOUT_WITHOUT = COMBINATIONS


@pytest.fixture(scope="module")
def pair() -> TwinPair:
    return twins.load()


@pytest.fixture
def heads() -> WhyCausal:
    return WhyCausal(step="2")


@pytest.fixture
def proof() -> WhyCausal:
    return WhyCausal(step="4")


def outcome(pair: TwinPair, one: Combination, text: str = TEXT) -> twins.TwinOutcome:
    return twins.outcome(pair.run(pair.encode(text), one))


FIGURES = {1: {"training_figure", "loss_figure"}, 2: {"head_figure"}, 3: set(), 4: {"proof_figure"}, 5: set()}


def test_something_is_there_at_once_at_every_step_and_nothing_of_the_others() -> None:
    page = WhyCausal(None)
    for step, figures in FIGURES.items():
        page.step(step)
        assert set(page.figures()) == figures
        assert len(page.sentences()) == (step in (1, 2, 4))
        assert ['class="four"' in one for one in page.html()].count(True) == (step == 3)
        assert bool(page.app.text_area(key="why_text"))
        assert ("live_start" in [button.key for button in page.app.button]) == (step == 5)
        assert not page.app.error
        assert not page.app.warning


def test_previous_and_next_go_through_the_steps_and_the_step_is_in_the_link() -> None:
    page = WhyCausal(None)
    assert page.app.button(key="why_previous").disabled
    for step in (2, 3, 4, 5):
        page.press("why_next")
        assert (page["why_step"], page.url) == (step, {"step": str(step)})
    assert page.app.button(key="why_next").disabled
    page.press("why_previous")
    assert page["why_step"] == 4
    page.app.session_state["why_step"] = 3  # by a press of Previous whose step is not drawn yet
    assert page.press("why_previous")["why_step"] == 2
    assert WhyCausal(None, step="3")["why_step"] == 3
    assert WhyCausal(None, step="6")["why_step"] == 1


@pytest.mark.parametrize("step", [2, 4])
def test_a_step_computes_what_is_on_it_alone(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    functions = set()
    ask = results.ask

    def note(function: Any, *arguments: Any, **options: Any) -> Any:
        functions.add(function.__name__)
        return ask(function, *arguments, **options)

    monkeypatch.setattr(results, "ask", note)
    WhyCausal(step=str(step))
    assert functions & {"outcome", "write", "change"} == ({"outcome"} if step == 2 else {"change"})


def findings(page: WhyCausal) -> list[str]:
    (found,) = [one for one in page.html() if one.startswith("<ol>")]
    return [html.unescape(re.sub("<.*?>", "", one)) for one in re.findall("<li>.*?</li>", found)]


def test_the_last_step_ends_with_what_was_seen_in_numbers_of_the_runs(pair: TwinPair) -> None:
    page = WhyCausal(step="4").set(why_place=6, why_token=99).step(5)
    loss, head, later = findings(page)
    for combination in (WITHOUT_WITHOUT, WITHOUT_WITH, WITH_WITH):
        assert nats(outcome(pair, combination).loss) in loss
    own, other = outcome(pair, WITHOUT_WITHOUT).copies, outcome(pair, WITH_WITHOUT).copies
    layer, best = twins.best_head(own)
    assert f"L{layer} H{best} puts {percent(float(own.max()))}" in head
    assert f"In the model trained with the mask, the highest is {percent(float(other.max()))}." in head
    model, batch = pair.models[True], pair.encode(TEXT)
    on, off = (twins.change(model, batch, 6, 99, causal=causal).earlier()[0] for causal in (True, False))
    assert on == 0
    assert later.startswith(
        "Mask on, the largest change of a logit in the 6 rows before the changed token is exactly 0"
    )
    assert f"the largest change of a logit is {steps.amount(off)}" in later


def test_each_model_s_copying_head_is_held_against_the_other_model(pair: TwinPair) -> None:
    for trained, other, way in (("true", WITHOUT_WITHOUT, "without"), ("false", WITH_WITHOUT, "with")):
        page = WhyCausal(step="2", trained=trained, run="false")
        largest = percent(float(outcome(pair, other).copies.max()))
        assert f"In the model trained {way} the mask, the highest is {largest}." in " ".join(page.sentences())


def test_what_was_seen_is_of_the_model_that_was_looked_at(pair: TwinPair) -> None:
    page = WhyCausal(step="4").set(why_place=6, why_token=99, why_proof=False).step(5)
    off = twins.change(pair.models[False], pair.encode(TEXT), 6, 99, causal=False).earlier()[0]
    assert f"the largest change of a logit is {steps.amount(off)}" in findings(page)[2]


def test_what_was_seen_is_of_another_token_where_the_chosen_one_is_the_same(pair: TwinPair) -> None:
    page = WhyCausal(step="4").set(why_place=3, why_token=int(pair.encode(TEXT).ids[0, 3])).step(5)
    assert "the largest change of a logit is exactly 0" not in findings(page)[2]


def test_the_sentence_says_what_was_measured(pair: TwinPair) -> None:
    text = WhyCausal().sentences()[0]
    curves = twins.curves()
    scores = twins.copy_scores(pair.run(pair.encode(TEXT), WITHOUT_WITHOUT))
    layer, head = twins.best_head(scores)
    for number in (
        f"{curves.training[False][-1]:.2f} nats",
        f"at {curves.training[True][-1]:.2f}",
        f"L{layer} H{head} puts {percent(float(scores.max()))}",
        f"{outcome(pair, WITHOUT_WITH).loss:.1f} nats",
        f"that of the other model is {outcome(pair, WITH_WITH).loss:.1f}",
    ):
        assert number in text, text


def test_the_four_cards_are_the_four_combinations(pair: TwinPair) -> None:
    words = {True: "with", False: "without"}
    for one, (trained, run, loss, accuracy) in zip(COMBINATIONS, WhyCausal(step="3").cards(), strict=True):
        assert (trained, run) == (words[one.trained], words[one.run])
        found = outcome(pair, one)
        assert loss == nats(found.loss)
        assert accuracy == percent(found.accuracy)


def test_the_training_curves_are_those_that_ship() -> None:
    curves = twins.curves()
    drawn = WhyCausal().figures()["training_figure"]["data"]
    expected = (curves.training[True], curves.training[False], curves.held_out[WITHOUT_WITH])
    for trace, losses in zip(drawn, expected, strict=True):
        np.testing.assert_allclose(array(trace["y"]), losses, rtol=1e-6)
        np.testing.assert_allclose(array(trace["x"]), curves.steps)


def test_it_opens_at_the_head_that_copies_most_and_jumps_back_to_it(pair: TwinPair, heads: WhyCausal) -> None:
    trace = pair.run(pair.encode(TEXT), WITHOUT_WITHOUT)
    scores = twins.copy_scores(trace)
    best = twins.best_head(scores)
    assert heads["why_head"] == best
    np.testing.assert_allclose(heads.weights(), trace.weights(*best).numpy(), atol=1e-6)
    jump = next(button for button in heads.app.button if button.label == "Go to the highest copy score")
    assert jump.disabled

    heads.set(why_head=(2, 1))
    np.testing.assert_allclose(heads.weights(), trace.weights(2, 1).numpy(), atol=1e-6)
    assert percent(float(scores[2, 1])) in heads.sentences()[0]
    heads.press("Go to the highest copy score")
    assert heads["why_head"] == best


def test_every_head_has_its_copy_score_and_no_table_is_all_zeros(pair: TwinPair) -> None:
    batch, page = pair.encode(TEXT), WhyCausal(step="2")
    for one, cells in zip((WITH_WITHOUT, WITHOUT_WITHOUT), page.copies(), strict=True):
        scores = twins.copy_scores(pair.run(batch, one))
        assert cells == [percent(float(score)) for score in scores.ravel()]
    for one, name in ((WITH_WITH, "trained with"), (WITHOUT_WITH, "trained without")):
        assert not twins.copy_scores(pair.run(batch, one)).any()
        assert f"{name}, run with · blocked: exactly 0 in every head" in page.boxes("caption")


def test_the_mask_put_back_takes_the_copying_from_the_same_head(pair: TwinPair, heads: WhyCausal) -> None:
    head = heads["why_head"]
    heads.set(why_run=True)
    assert heads["why_head"] == head
    weights = heads.weights()
    assert np.isnan(weights[np.triu_indices(len(weights), 1)]).all()
    assert "exactly 0 on the next token" in heads.sentences()[0]
    heads.set(why_trained=True, why_run=False)
    best = twins.best_head(twins.copy_scores(pair.run(pair.encode(TEXT), WITH_WITHOUT)))
    assert heads["why_head"] == best


def test_the_losses_of_every_token_are_drawn(pair: TwinPair) -> None:
    drawn = WhyCausal().figures()["loss_figure"]["data"]
    for one, trace in zip(COMBINATIONS, drawn, strict=True):
        np.testing.assert_allclose(array(trace["y"])[1:], outcome(pair, one).losses[1:], atol=1e-5)


@pytest.mark.parametrize("trained", [True, False])
def test_the_proof_is_two_runs(pair: TwinPair, proof: WhyCausal, trained: bool) -> None:
    proof.set(why_proof=trained, why_place=6, why_token=99)
    changes = {run: twins.change(pair.models[trained], pair.encode(TEXT), 6, 99, causal=run) for run in (True, False)}
    bars = [trace for trace in proof.figures()["proof_figure"]["data"] if trace["type"] == "bar"]
    for run, trace in zip((True, False), bars, strict=True):
        np.testing.assert_allclose(array(trace["y"]), changes[run].logits, atol=1e-5)
    assert not array(bars[0]["y"])[:6].any()
    text = proof.sentences()[0]
    assert "the largest change of a logit in the 6 rows before the changed token is exactly 0" in text
    assert f"the largest change of a logit is {steps.amount(changes[False].earlier()[0])}" in text


def test_the_same_token_again_is_said(pair: TwinPair, proof: WhyCausal) -> None:
    proof.set(why_place=3, why_token=int(pair.encode(TEXT).ids[0, 3]))
    assert "the same as before" in proof.sentences()[0]


def test_drawing_again_writes_something_else() -> None:
    page = WhyCausal(step="3")

    def grid() -> str:
        (found,) = [one for one in page.html() if 'class="four"' in one]
        return found

    first = grid()
    page.press("Sample again")
    assert grid() != first
    page.set(why_writing="likeliest")
    assert not [button for button in page.app.button if button.label == "Sample again"]


@pytest.mark.parametrize("text", ["a", "🙂 <script>alert(1)</script> $x$ `code`\n\nthree"])
def test_any_text(text: str) -> None:
    page, sentences = WhyCausal(text), 0
    for step in range(1, 6):
        page.step(step)
        assert not page.app.error
        sentences += len(page.sentences())
        assert not [one for one in page.html() if "<script>" in one]
    assert sentences == 3
    assert len(findings(page)) == 3


def test_a_long_text_is_cut_and_the_page_says_where(pair: TwinPair) -> None:
    page = WhyCausal("the cat and the dog went to the sea. " * 60, step="2")
    (note,) = page.boxes("warning")
    assert f"at most {pair.context} tokens" in note
    assert page.weights().shape == (pair.context, pair.context)


@pytest.mark.parametrize("text", ["", "   \n "])
def test_no_text_is_an_invitation_and_hides_no_training(text: str) -> None:
    page = WhyCausal(text)
    assert page.boxes("info")[0].startswith("Type a text")
    assert set(page.figures()) == {"training_figure"}
    assert page.sentences()[0].startswith("A model trained without the causal mask")
    for step in (2, 3, 4, 5):
        assert page.step(step).boxes("info")[0].startswith("Type a text" if step < 5 else "Press Start")
        assert not page.figures()
    assert not page.app.button(key="live_start").disabled


def test_a_text_that_contradicts_the_lesson_is_said_to_and_why(pair: TwinPair) -> None:
    text = "word " * 40
    own, other = outcome(pair, WITHOUT_WITH, text), outcome(pair, WITH_WITH, text)
    assert own.loss < other.loss
    shown = WhyCausal(text).sentences()[0]
    assert f"With the mask put back its loss is {own.loss:.1f} nats/token" in shown
    assert (
        f"at {percent(own.echoes)} of the positions (the model trained with the mask: {percent(other.echoes)})" in shown
    )
    assert f"that is correct {percent(twins.repeats(pair.encode(text)))} of the time" in shown
    assert other.loss > np.log(len(pair.words()))
    assert "worse here than a uniform guess (6.9 nats)" in shown
    usual = WhyCausal().sentences()[0]
    assert "guess" not in usual


def outcomes_of(own: float, other: float, echoes: float) -> dict[Combination, twins.TwinOutcome]:
    """Return made-up outcomes of three tokens each."""
    copies, right = np.full((2, 3), 0.25), np.array([False, True, False])
    some = {WITHOUT_WITH: own, WITH_WITH: other, WITHOUT_WITHOUT: 0.1, WITH_WITHOUT: 4.0}
    return {one: twins.TwinOutcome(np.array([np.nan, loss, loss]), right, copies, echoes) for one, loss in some.items()}


def test_no_reason_is_given_that_does_not_hold(pair: TwinPair) -> None:
    batch, curves = pair.encode("the cat"), twins.curves()
    assert twins.repeats(batch) < 0.5
    sentences = {
        losses: steps.sentence(curves, outcomes_of(*losses, echoes=1.0), batch, vocabulary=1022)
        for losses in ((5.0, 3.0), (3.0, 5.0), (3.0, 3.02), (3.0, 8.0))
    }
    assert all("repeats, at" not in one for one in sentences.values())
    assert ["a uniform guess" in one for one in sentences.values()] == [False, False, False, True]


def test_a_shorter_text_moves_the_changed_token_into_it(proof: WhyCausal) -> None:
    proof.set(why_place=14)
    proof.set(why_text="the cat")
    assert proof["why_place"] <= 3


def test_the_head_that_the_page_chose_is_in_no_link_at_any_step(heads: WhyCausal) -> None:
    assert heads.step(4).url == {"step": "4"}
    heads.step(2).set(why_head=(2, 1))
    assert heads.step(4).url["head"] == "2.1"
