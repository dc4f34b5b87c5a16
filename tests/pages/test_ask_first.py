"""Explore and the Mask Lab with "Ask me first": a flipped mask is asked about before it is shown; Explore's start."""

import re
from itertools import pairwise

import numpy as np
import pytest

from model.masks import MaskSpec, Stroke
from tests.pages.explore import Explore, same
from tests.viz.packet import unpacked
from ui.ask_first import ASKING, TURNS
from ui.lessons.shelves import FIRST, STARTING_POINTS


def asking(**query: str) -> Explore:
    page = Explore(**query)
    page.set(ask_first_on=True)
    return page


def question(page: Explore) -> list[str]:
    """Return the answers offered; [] if nothing is asked."""
    return [button.label for button in page.app.button if re.fullmatch(r"first_\d", str(button.key))]


def verdicts(page: Explore) -> list[str]:
    return [re.sub("<.*?>", " ", one).strip() for one in page.html() if 'class="verdict' in one]


def test_a_flip_is_shown_only_after_an_answer_and_the_answer_is_the_run_s() -> None:
    page = asking()
    before = page.weights()
    page.set(causal=False)
    assert question(page) == ["It goes down.", "It changes by less than 0.05 nats/token.", "It goes up."]
    assert same(page.weights(), before)
    assert page.sentence() == ASKING
    assert [page.app.button(key=f"first_{number}").proto.shortcut for number in range(3)] == ["1", "2", "3"]
    page.press("first_2")
    assert not question(page)
    assert not same(page.weights(), before)
    (verdict,) = verdicts(page)
    means = re.findall(r"from ([\d.]+) to ([\d.]+)", verdict)[0]
    end = "That is right." if float(means[1]) > float(means[0]) else "Not quite. The answer is: It goes down."
    assert verdict.startswith(f"Your answer: It goes up. {end}")
    assert f"Mean loss: {means[0]} → {means[1]} nats" in page.sentence()


def test_every_kind_has_its_turn_and_a_text_without_padding_is_not_asked_about_it() -> None:
    page, kinds = asking(text="Once upon a time there was a cat", query="3"), []
    for turn in range(2 * len(TURNS)):
        page.set(causal=bool(turn % 2))
        kinds.append(next(one.value for one in page.app.markdown if one.value.startswith("**")))
        page.press("first_0")
    assert len(set(kinds)) == len(TURNS) - 1 == 6
    assert all(kind != following for kind, following in pairwise(kinds))
    assert not any("padding" in kind for kind in kinds)


@pytest.mark.parametrize("padding", ["true", "false"])
def test_the_standard_run_is_out_of_sight_while_it_may_be_asked_about(padding: str) -> None:
    """A text without padding has the same run with and without the padding mask."""
    page = asking(causal="false", padding=padding)
    lifted = page.weights()
    assert len(page.figures()["loss_figure"]["data"]) > 1
    page.set(causal=True)
    assert question(page)
    assert page.sentence() == ASKING
    assert same(page.weights(), lifted)
    assert not any("standard" in one for one in page.html() if "<table" in one)
    assert len(page.figures()["loss_figure"]["data"]) == 1


def test_switched_off_nothing_is_asked_and_a_new_text_is_shown_at_once() -> None:
    assert not question(Explore().set(causal=False))
    page = asking().set(causal=False)
    page.type("Another text")
    assert not question(page)
    assert np.isfinite(page.weights()).all()


def test_the_mask_lab_asks_too() -> None:
    page = asking()
    page.app.switch_page("pages/mask_lab.py")
    page.run().set(causal=False)
    assert len(question(page)) == 3
    page.press("first_0")
    assert len(verdicts(page)) == 1


@pytest.mark.parametrize("padding", ["true", "false"])
def test_the_lab_hides_the_standard_run_while_it_may_be_asked_about(padding: str) -> None:
    page = asking(causal="false", padding=padding)
    page.app.switch_page("pages/mask_lab.py")
    lifted = page.run().set(shown="change").figures()
    assert "loss_figure" in lifted
    page.set(causal=True)
    assert question(page)
    assert "loss_figure" not in page.figures()
    assert not any("standard" in one for one in page.html() if "<table" in one)
    assert np.nanmin(page.weights()) >= 0  # weights of the previous run, not a change
    page.press("first_0")
    assert "loss_figure" in page.figures()
    assert page["shown"] == "change"


@pytest.mark.parametrize(
    ("name", "head", "masks"),
    [("start_previous", (0, 3), (True, True)), ("start_future", (4, 0), (False, True)),
     ("start_padding", (0, 3), (True, False))],
)  # fmt: skip
def test_a_thing_to_try_is_done(name: str, head: tuple[int, int], masks: tuple[bool, bool]) -> None:
    page = Explore(causal="false", layer="2").press(name)
    assert ((page["layer"], page["head"]), (page["causal"], page["padding"])) == (head, masks)
    icons = {thing: page.app.button(key=thing).proto.icon for thing in STARTING_POINTS}
    assert [thing for thing, icon in icons.items() if "check_circle" in icon] == [name]


def test_things_are_tried_on_the_readers_own_text() -> None:
    page = Explore(text="A text of my own")
    texts = [page.press(name)["text"] for name in ("start_future", "start_padding", "start_previous")]
    assert texts == ["A text of my own", STARTING_POINTS["start_padding"]["text"], "A text of my own"]
    page.set(text=FIRST)
    assert page.press("start_future")["text"] == FIRST


def test_the_start_is_gone_when_closed() -> None:
    page = Explore().press("start_close").set(causal=False)
    assert not {button.key for button in page.app.button} & {*STARTING_POINTS, "start_close"}


def test_what_is_drawn_before_the_answer_is_on_the_canvas_and_not_yet_in_the_head() -> None:
    page = asking(text="Once upon a time there was a cat")
    page.app.switch_page("pages/mask_lab.py")
    before = page.run().weights()
    page.app.session_state.mask_drawn, page.app.session_state.mask_drawn_on = (Stroke("block", 4, 0, 5, 1),), True
    page.run()
    assert question(page)
    assert unpacked(page.packets()["unmask_mask"])[0]["strokes"] == [["block", 4, 0, 5, 1]]
    assert same(page.weights(), before)
    page.press("first_0")
    assert np.isnan(page.weights()[4:6, :2]).all()


def test_what_is_asked_about_is_in_the_lab_s_address_and_asked_again_after_back() -> None:
    page = asking(text="Once upon a time there was a cat")
    page.app.switch_page("pages/mask_lab.py")
    page.run().set(causal=False, mask_sliding_on=True)
    page.app.session_state.mask_drawn, page.app.session_state.mask_drawn_on = (Stroke("block", 4, 0, 5, 1),), True
    address = page.run().url
    spec = MaskSpec.from_json(address["masks"])
    assert question(page)
    assert (spec.causal, spec.sliding, spec.drawn) == (False, page["mask_sliding"], page["mask_drawn"])
    page.set(head=3)
    page.app.query_params.clear()  # as the browser does on Back
    page.app.query_params.update(address)
    page.run()
    assert question(page)
    assert page.url == address
    assert (page["causal"], page["mask_sliding_on"], page["mask_drawn"]) == (False, True, spec.drawn)


def test_a_verdict_stays_with_the_head_that_it_is_about() -> None:
    page = asking(layer="4", head="0")
    page.app.session_state.first_kind = "loss"  # the next question is about later tokens
    page.set(causal=False).press("first_0")
    assert f"{page.leaks()[0][0]} of this head" in verdicts(page)[0]
    page.set(head=2)
    assert not verdicts(page)
    assert f"{page.leaks()[0][0]} of this head" in page.sentence()


def test_the_query_of_a_question_is_the_one_chosen_where_tokens_are_merged() -> None:
    page = asking(text="The cat sat. The dog ran away.", by="sentences", query="1")
    page.app.session_state.first_kind = "padding"
    page.set(causal=False)
    question = next(one.value for one in page.app.markdown if one.value.startswith("**"))
    assert page.labels()[1].startswith("The")
    assert question == "**Under these masks, which token will “.” at 4 attend to most?**"


def test_what_follows_is_asked_of_the_target_where_the_longer_source_s_tokens_look(folders: dict[str, str]) -> None:
    page = asking(model=folders["t5"], text="the cat sat on a mat", target="one old mat", attention="encoder")
    page.app.session_state.first_kind = "looks"
    page.set(causal=False)
    asked = next(one.value for one in page.app.markdown if one.value.startswith("**"))
    assert asked == "**Under these masks, which token will the model predict after “mat” at 3?**"
    page.press("first_0")
    first, _, second = page.candidates()[:3]  # each is followed by one under the standard masks
    assert f"“{first[0]}” with {first[1]}; “{second[0]}” is second, with {second[1]}." in verdicts(page)[0]
