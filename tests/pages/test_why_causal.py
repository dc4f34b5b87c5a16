"""Why causal without a browser: every number it says, its choices, odd texts, and the live training.

python -m pytest tests/pages/test_why_causal.py
"""

import html
import re
import time
from collections.abc import Iterator

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from model.why_causal import live, twins
from model.why_causal.twins import COMBINATIONS, Combination, Pair
from tests.pages.explore import ROOT, Explore, array
from ui.why_causal import words
from viz.numbers import tenths
from viz.why_causal.tables import nats

WITH_WITH, WITH_WITHOUT, WITHOUT_WITH, WITHOUT_WITHOUT = COMBINATIONS
TEXT = "The king said to his son, and the old man went into the wood."


class WhyCausal(Explore):
    """One reader's page. Every run of it has to end without an exception."""

    def __init__(self, text: str | None = TEXT, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
        self.app.switch_page("pages/why_causal.py")
        self.app.query_params.update(query)
        if text is not None:
            self.app.session_state["why_text"] = text
        self.run()

    def pick(self, **choices: object) -> "WhyCausal":
        """Take an option in each of these segmented controls or select boxes, by their keys."""
        for key, option in choices.items():
            kinds = ("why_head", "why_place", "why_token")
            box = self.app.selectbox if key in kinds else self.app.segmented_control
            box(key=key).set_value(option)
            self.run()
        return self

    def press(self, key: str) -> "WhyCausal":
        self.app.button(key=key).click()
        self.run()
        return self

    def sentences(self) -> list[str]:
        """What the numbers say: of the training, of the head, of the proof."""
        found = [one for one in self.html() if 'class="sentence"' in one]
        return [html.unescape(re.sub("<.*?>", "", one)) for one in found]

    def cards(self) -> list[tuple[str, ...]]:
        """(how trained, how run, loss, accuracy) of each card."""
        (grid,) = [one for one in self.html() if 'class="four"' in one]
        words = re.findall(r"trained <b>(\w+)</b> the mask, run <b>(\w+)</b>", grid)
        numbers = re.findall(r"<b>([^<]*)</b> nats a token.*?<b>([^<]*)</b> guessed right", grid)
        return [(*how, *map(html.unescape, what)) for how, what in zip(words, numbers, strict=True)]

    def copies(self) -> list[list[str]]:
        """The cells of each table of copy scores."""
        tables = [one for one in self.html() if 'class="copies"' in one]
        return [list(map(html.unescape, re.findall(r"<td[^>]*>(.*?)</td>", one))) for one in tables]

    def until_over(self) -> live.Progress:
        """Watch the training as the page does, until it is over."""
        deadline = time.monotonic() + 60
        while not (progress := self["live_training"].watch()).over:
            assert time.monotonic() < deadline, progress
            time.sleep(0.1)
        return progress


@pytest.fixture(scope="module")
def pair() -> Pair:
    return twins.load()


@pytest.fixture
def page() -> Iterator[WhyCausal]:
    """A page whose training, if it has one, is stopped after the test."""
    one = WhyCausal()
    yield one
    if one["live_training"]:
        one["live_training"].stop()


def outcome(pair: Pair, one: Combination, text: str = TEXT) -> twins.Outcome:
    return twins.outcome(pair.run(pair.encode(text), one))


def test_something_is_there_at_once() -> None:
    page = WhyCausal(None)
    assert set(page.figures()) == {"training_figure", "head_figure", "loss_figure", "proof_figure"}
    assert len(page.sentences()) == 3
    assert not page.app.error
    assert not page.app.warning


def test_the_sentence_says_what_was_measured(pair: Pair) -> None:
    said = WhyCausal().sentences()[0]
    curves = twins.curves()
    scores = twins.copy_scores(pair.run(pair.encode(TEXT), WITHOUT_WITHOUT))
    layer, head = twins.best_head(scores)
    for number in (
        f"{curves.training[False][-1]:.2f} nats",
        f"at {curves.training[True][-1]:.2f}",
        f"L{layer} H{head} puts {tenths(float(scores.max()))}",
        f"{outcome(pair, WITHOUT_WITH).loss:.1f} nats",
        f"its twin’s {outcome(pair, WITH_WITH).loss:.1f}",
    ):
        assert number in said, said


def test_the_four_cards_are_the_four_combinations(pair: Pair) -> None:
    words = {True: "with", False: "without"}
    for one, (trained, run, loss, accuracy) in zip(COMBINATIONS, WhyCausal().cards(), strict=True):
        assert (trained, run) == (words[one.trained], words[one.run])
        found = outcome(pair, one)
        assert loss == nats(found.loss)
        assert accuracy == tenths(found.accuracy)


def test_the_training_curves_are_those_that_ship() -> None:
    curves = twins.curves()
    drawn = WhyCausal().figures()["training_figure"]["data"]
    expected = (curves.training[True], curves.training[False], curves.held_out[WITHOUT_WITH])
    for trace, losses in zip(drawn, expected, strict=True):
        np.testing.assert_allclose(array(trace["y"]), losses, rtol=1e-6)
        np.testing.assert_allclose(array(trace["x"]), curves.steps)


def test_it_opens_at_the_head_that_copies_most_and_jumps_back_to_it(pair: Pair, page: WhyCausal) -> None:
    trace = pair.run(pair.encode(TEXT), WITHOUT_WITHOUT)
    scores = twins.copy_scores(trace)
    best = twins.best_head(scores)
    assert page["why_head"] == best
    np.testing.assert_allclose(page.weights(), trace.weights(*best).numpy(), atol=1e-6)
    jump = next(button for button in page.app.button if button.label == "Jump to the best")
    assert jump.disabled

    page.pick(why_head=(2, 1))
    np.testing.assert_allclose(page.weights(), trace.weights(2, 1).numpy(), atol=1e-6)
    assert tenths(float(scores[2, 1])) in page.sentences()[1]
    next(button for button in page.app.button if button.label == "Jump to the best").click()
    page.run()
    assert page["why_head"] == best


def test_every_head_has_its_copy_score_under_all_four(pair: Pair) -> None:
    batch = pair.encode(TEXT)
    for one, cells in zip(COMBINATIONS, WhyCausal().copies(), strict=True):
        scores = twins.copy_scores(pair.run(batch, one))
        assert cells == [tenths(float(score)) for score in scores.ravel()]
        if one.run:
            assert set(cells) == {"0 %"}


def test_the_mask_put_back_takes_the_copying_from_the_same_head(pair: Pair, page: WhyCausal) -> None:
    head = page["why_head"]
    page.pick(why_run=True)
    assert page["why_head"] == head
    weights = page.weights()
    assert np.isnan(weights[np.triu_indices(len(weights), 1)]).all()
    assert "exactly 0 on the next token" in page.sentences()[1]
    page.pick(why_trained=True, why_run=False)
    best = twins.best_head(twins.copy_scores(pair.run(pair.encode(TEXT), WITH_WITHOUT)))
    assert page["why_head"] == best


def test_the_losses_of_every_token_are_drawn(pair: Pair) -> None:
    drawn = WhyCausal().figures()["loss_figure"]["data"]
    for one, trace in zip(COMBINATIONS, drawn, strict=True):
        np.testing.assert_allclose(array(trace["y"])[1:], outcome(pair, one).losses[1:], atol=1e-5)


@pytest.mark.parametrize("trained", [True, False])
def test_the_proof_is_two_runs(pair: Pair, page: WhyCausal, trained: bool) -> None:
    page.pick(why_proof=trained, why_place=6, why_token=99)
    changes = {run: twins.change(pair.models[trained], pair.encode(TEXT), 6, 99, causal=run) for run in (True, False)}
    bars = [trace for trace in page.figures()["proof_figure"]["data"] if trace["type"] == "bar"]
    for run, trace in zip((True, False), bars, strict=True):
        np.testing.assert_allclose(array(trace["y"]), changes[run].logits, atol=1e-5)
    assert not array(bars[0]["y"])[:6].any()
    said = page.sentences()[2]
    assert "nothing moves in the 6 rows before it: the largest change of a logit is exactly 0" in said
    assert f"the largest is {words.amount(changes[False].earlier()[0])}" in said


def test_the_same_token_again_is_said(pair: Pair, page: WhyCausal) -> None:
    page.pick(why_place=3, why_token=int(pair.encode(TEXT).ids[0, 3]))
    assert "the same as before" in page.sentences()[2]


def test_drawing_again_writes_something_else(page: WhyCausal) -> None:
    def grid() -> str:
        (found,) = [one for one in page.html() if 'class="four"' in one]
        return found

    first = grid()
    next(button for button in page.app.button if button.label == "Draw again").click()
    page.run()
    assert grid() != first
    page.pick(why_writing="likeliest")
    assert not [button for button in page.app.button if button.label == "Draw again"]


@pytest.mark.parametrize("text", ["a", "🙂 <script>alert(1)</script> $x$ `code`", "one\ntwo\n\nthree", "  x"])
def test_any_text(text: str) -> None:
    page = WhyCausal(text)
    assert not page.app.error
    assert len(page.sentences()) == 3
    assert not [one for one in page.html() if "<script>" in one]


def test_a_long_text_is_cut_and_the_page_says_where(pair: Pair) -> None:
    page = WhyCausal("the cat and the dog went to the sea. " * 60)
    (note,) = page.said("warning")
    assert f"at most {pair.context} tokens" in note
    assert page.weights().shape == (pair.context, pair.context)


@pytest.mark.parametrize("text", ["", "   \n "])
def test_no_text_is_an_invitation_and_hides_no_training(text: str) -> None:
    page = WhyCausal(text)
    assert page.said("info")[0].startswith("Type a text")
    assert set(page.figures()) == {"training_figure"}
    assert page.sentences()[0].startswith("Trained without the causal mask")
    assert not page.app.button(key="live_start").disabled


def test_a_text_that_contradicts_the_lesson_is_said_to_and_why(pair: Pair) -> None:
    text = "word " * 40
    own, other = outcome(pair, WITHOUT_WITH, text), outcome(pair, WITH_WITH, text)
    assert own.loss < other.loss
    said = WhyCausal(text).sentences()[0]
    assert f"the other way round for this text: its loss is {own.loss:.1f} nats a token" in said
    assert f"at {tenths(own.echoes)} of the places (its twin at {tenths(other.echoes)})" in said
    assert f"that is right {tenths(twins.repeats(pair.encode(text)))} of the time" in said
    assert other.loss > np.log(len(pair.words()))
    assert "worse here than guessing blindly (6.9 nats)" in said
    usual = WhyCausal().sentences()[0]
    assert "other way round" not in usual
    assert "guess" not in usual


def outcomes_of(own: float, other: float, echoes: float) -> dict[Combination, twins.Outcome]:
    """Made up, of three tokens each."""
    copies, right = np.full((2, 3), 0.25), np.array([False, True, False])
    some = {WITHOUT_WITH: own, WITH_WITH: other, WITHOUT_WITHOUT: 0.1, WITH_WITHOUT: 4.0}
    return {one: twins.Outcome(np.array([np.nan, loss, loss]), right, copies, echoes) for one, loss in some.items()}


def test_no_reason_is_given_that_does_not_hold(pair: Pair) -> None:
    batch, curves = pair.encode("the cat"), twins.curves()
    assert twins.repeats(batch) < 0.5
    said = {
        losses: words.sentence(curves, outcomes_of(*losses, echoes=1.0), batch, vocabulary=1022)
        for losses in ((5.0, 3.0), (3.0, 5.0), (3.0, 3.02), (3.0, 8.0))
    }
    assert all("comes again" not in one for one in said.values())
    assert ["other way round" in one for one in said.values()] == [False, True, False, True]
    assert ["no different" in one for one in said.values()] == [False, False, True, False]
    assert ["guessing blindly" in one for one in said.values()] == [False, False, False, True]


def test_a_link_brings_the_view_back() -> None:
    page = WhyCausal(None, text="the cat sat", head="1.2", run="true", proof="false", place="2", live_steps="100")
    assert page["why_text"] == "the cat sat"
    assert page["why_head"] == (1, 2)
    assert page["why_place"] == 2
    assert page["live_steps"] == 100
    linked = {name: value if isinstance(value, str) else value[0] for name, value in page.app.query_params.items()}
    assert linked == {"text": "the cat sat", "head": "1.2", "run": "true", "proof": "false", "place": "2",
                      "live_steps": "100"}  # fmt: skip
    assert not dict(WhyCausal(None).app.query_params)


@pytest.mark.parametrize(
    "query", [{"head": "x"}, {"head": "9.9"}, {"place": "99999"}, {"token": "9999"}, {"seed": "-"}]
)
def test_a_link_that_makes_no_sense_still_shows_something(query: dict[str, str]) -> None:
    assert len(WhyCausal(None, **query).figures()) == 4


def test_a_shorter_text_moves_the_changed_token_into_it(page: WhyCausal) -> None:
    page.pick(why_place=14)
    page.app.text_area(key="why_text").set_value("the cat")
    page.run()
    assert page["why_place"] <= 3


def test_the_choices_outlast_a_visit_to_another_page(page: WhyCausal) -> None:
    page.pick(why_trained=True, why_proof=False, live_steps=100)
    page.app.switch_page("app.py")
    page.run()
    page.app.switch_page("pages/why_causal.py")
    page.run()
    assert page["why_trained"] is True
    assert page["why_proof"] is False
    assert page["live_steps"] == 100


# the live training


def test_a_training_from_start_to_end_and_a_second_one_beside_it(page: WhyCausal) -> None:
    page.pick(live_steps=100).press("live_start")
    assert page.app.button(key="live_start").disabled
    assert not page.app.button(key="live_stop").disabled
    progress = page.until_over()
    page.run()
    assert progress.state == "done", progress.why
    (trace,) = page.figures()["live_figure"]["data"]
    np.testing.assert_allclose(array(trace["y"]), progress.losses, rtol=1e-5)
    assert not page.app.button(key="live_start").disabled
    said = " ".join(one.value for one in page.app.markdown)
    assert f"run with the mask: **{progress.with_mask:.2f}** nats" in said
    assert f"**{progress.without_mask:.2f}**" in said
    assert page.app.code[-1].value == progress.texts[-1][1].replace("\n", "⏎")

    page.pick(live_causal=True).press("live_start")
    page.until_over()
    page.run()
    names = [trace["name"] for trace in page.figures()["live_figure"]["data"]]
    assert names == ["1: without the mask", "2: with the mask"]
    said = " ".join(one.value for one in page.app.markdown)
    assert "all copy scores are exactly 0" in said
    page.press("live_clear")
    assert "live_figure" not in page.figures()


def test_pause_and_stop_are_there_when_they_do_something(page: WhyCausal) -> None:
    assert page.app.button(key="live_pause").disabled
    assert page.app.button(key="live_stop").disabled
    page.press("live_start").press("live_pause")
    assert page["live_training"].watch().state == "paused"
    page.press("live_go_on").press("live_stop")
    assert page["live_training"].watch().state == "stopped"
    assert not page["live_training"].is_alive()
    assert page.app.button(key="live_stop").disabled


def test_a_text_too_short_to_train_on_is_a_sentence(page: WhyCausal) -> None:
    page.app.text_area(key="live_text").set_value("too short")
    page.run().press("live_start")
    assert page.said("error") == ["A text of at least 200 characters is needed to train on, this one has 9."]
    assert page["live_training"] is None


def test_what_is_wrong_with_a_text_is_said_no_longer_than_it_is(page: WhyCausal) -> None:
    page.app.text_area(key="live_text").set_value("too short")
    page.run().press("live_start")
    assert page.app.error
    page.app.text_area(key="live_text").set_value("the cat sat on the mat. " * 20)
    page.run()
    assert not page.app.error


def test_of_a_text_beyond_the_limit_it_is_said_what_is_left_out(page: WhyCausal) -> None:
    page.app.text_area(key="live_text").set_value("x" * (live.MOST_CHARACTERS + 1234))
    page.run()
    assert any("first 40,000 characters; the other 1,234 are left out" in one.value for one in page.app.caption)


def test_a_training_whose_process_is_killed_is_a_sentence(page: WhyCausal) -> None:
    page.press("live_start")
    page["live_training"]._process.kill()
    assert page.until_over().state == "failed"
    page.run()
    assert any("ended before it was done. Start it again." in one.value for one in page.app.markdown)
    assert not page.app.button(key="live_start").disabled


class Done:
    """A training that is over, and came to this copy score."""

    causal, total_steps = False, 100

    def __init__(self, copy: float) -> None:
        self.copy = copy

    def watch(self) -> live.Progress:
        copy = ((0.01, self.copy), (0.02, 0.03))
        return live.Progress("done", (100,), (1.266,), (2.0,), (), with_mask=2.67, without_mask=1.27, copy=copy)

    def stop(self) -> None: ...


def test_where_no_head_copies_yet_it_is_said_and_more_steps_are_offered(page: WhyCausal) -> None:
    page.app.session_state["live_training"] = Done(0.07)
    page.run()
    said = " ".join(one.value for one in page.app.markdown)
    assert "No head copies yet**: the best, L0 H1, puts 7.0 % of its attention on the next character" in said
    page.press("live_longer")
    assert page["live_steps"] == page["live_training"].total_steps == 200
    assert page["live_kept"][0].progress.losses == (1.266,)


def test_where_a_head_copies_nothing_more_is_offered(page: WhyCausal) -> None:
    page.app.session_state["live_training"] = Done(0.88)
    page.run()
    said = " ".join(one.value for one in page.app.markdown)
    assert "Its best copy head, L0 H1, puts 88.0 % of its attention on the next character" in said
    assert not [one for one in page.app.button if one.key == "live_longer"]


def test_a_full_server_says_so(page: WhyCausal) -> None:
    others = [live.Training("the cat sat on the mat. " * 20, causal=True, steps=600) for _ in range(live.MOST_AT_ONCE)]
    try:
        page.press("live_start")
        assert "as many as this server takes at once. Try again in a minute." in page.said("error")[0]
        assert page["live_training"] is None
    finally:
        for training in others:
            training.stop()
    page.press("live_start")
    assert not page.app.error


def test_two_readers_have_two_trainings(page: WhyCausal) -> None:
    page.press("live_start")
    other = WhyCausal()
    assert other["live_training"] is None
    assert "live_figure" not in other.figures()
