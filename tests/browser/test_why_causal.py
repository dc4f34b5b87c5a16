"""Why causal in a real Chromium: a training that grows, pauses, stops, ends when it is left, and holds up nobody."""

from collections.abc import Callable

import pytest

from model.why_causal.live_training import REPORT_EVERY
from serving.background import UNWATCHED_SECONDS
from tests.browser.why_causal import WhyCausal

Visit = Callable[..., WhyCausal]


def started(visit: Visit) -> WhyCausal:
    """A page whose training has its first steps."""
    page = visit("step=5", kind=WhyCausal)
    page.press("Start")
    page.until(lambda: page.step() > 0 and page.curve())
    return page


def test_a_training_from_start_to_end(visit: Visit) -> None:
    """Its curve grows, a pause stands still, it goes on while another step is looked at, and it learns to copy."""
    page = started(visit)
    first = page.points()
    page.until(lambda: page.points() >= first + 3)

    page.press("Pause")
    page.until(lambda: "Paused" in page.status())
    seen = paused = page.step()
    page.page.wait_for_timeout(1500)
    while page.step() > paused:  # on a busy machine a report takes its time
        paused = page.step()
        page.page.wait_for_timeout(1500)
    assert paused <= seen + 2 * REPORT_EVERY, "more than one report on its way to the page, and the one under way"

    page.press("Continue")
    page.until(lambda: page.step() > paused)
    page.after(lambda: page.page.get_by_role("button", name="Previous").click())
    seen = page.step()
    page.until(lambda: page.step() > seen)
    page.page.wait_for_timeout(1000 * UNWATCHED_SECONDS + 1500)  # longer than it waits for one who has left
    page.page.get_by_role("radio", name="5 Train it yourself").click()
    page.until(lambda: "Done" in page.status() and page.curve(), 240)  # seconds; on two free cores it takes about ten
    assert "nobody" not in page.status()
    (losses,) = page.curve()
    assert losses[-1] < 0.2 < 2 < losses[0]


def test_a_second_reader_is_answered_while_another_trains_and_stop_stops(visit: Visit) -> None:
    other = visit("step=2", kind=WhyCausal, fresh=True)
    page = visit("step=5", kind=WhyCausal)
    page.pick("600")
    page.press("Start")
    page.until(lambda: page.step() > 0)
    for choice in ("run with the mask", "run without", "run with the mask"):
        before = page.step()
        other.after(lambda choice=choice: other.pick(choice))
        assert before <= page.step() < 600, "answered only once the training had ended"
    page.press("Stop")
    page.until(lambda: "Stopped" in page.status() and page.curve())
    page.page.wait_for_timeout(500)  # until the curve that it ended with is drawn
    stopped = page.step(), page.curve()
    page.page.wait_for_timeout(1500)
    assert (page.step(), page.curve()) == stopped
    assert stopped[0] < 600


def test_the_steps_are_gone_through_by_keyboard(visit: Visit) -> None:
    page = visit("step=4", kind=WhyCausal)
    page.page.get_by_role("button", name="Next").focus()
    page.after(lambda: page.page.keyboard.press("Enter"))
    page.page.wait_for_url("**/why_causal?step=5")
    page.page.get_by_role("button", name="Previous").focus()
    page.after(lambda: page.page.keyboard.press("Enter"))
    page.page.wait_for_url("**/why_causal?step=4")
    page.page.get_by_role("radio", name="1 The loss").focus()
    page.after(lambda: page.page.keyboard.press("Space"))
    page.page.wait_for_url("**/why_causal")


CHARTS = (".st-key-training_figure", ".four", ".st-key-head_figure", ".st-key-loss_figure", ".st-key-proof_figure")


FIGURES = {1: 2, 2: 1, 3: 1, 4: 1, 5: 0}  # of CHARTS, on each step before anything is pressed


@pytest.mark.parametrize("step", range(1, 6))
def test_a_step_fits_a_projector_and_nothing_of_it_is_cut_off(visit: Visit, step: int) -> None:
    page = visit(f"step={step}", kind=WhyCausal, width=1280, height=720)
    what = {2: ".st-key-one_head_figure"}.get(step, "[data-testid=stMainBlockContainer]")  # below it, more tables
    assert page.page.locator(what).evaluate("one => one.getBoundingClientRect().bottom") <= 720
    charts = [one for one in CHARTS if page.page.locator(one).count()]
    assert len(charts) == FIGURES[step]
    for look in page.looks(1280, 1920, schemes=["light"]):
        assert not page.sticks_out(), look
        assert not page.cut_off(), look
        assert not page.overlaps(charts), look


def test_a_section_that_ran_alone_has_its_choice_when_the_reader_comes_back(visit: Visit) -> None:
    page = visit("step=2", kind=WhyCausal)
    page.after(lambda: page.pick("run with the mask"))
    page.page.wait_for_url("**/why_causal?step=2&run=true")
    for name, address in (("Padding", "**/padding"), ("Why causal", "**/why_causal?step=2&run=true")):
        page.page.get_by_role("link", name=name, exact=True).click()
        page.page.wait_for_url(address)
