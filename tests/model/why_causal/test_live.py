"""Tests of live training: its curve, stop, pause, its end when nobody watches, limits of a text and of a server."""

import time
from collections.abc import Callable, Iterator

import pytest
import torch

from model.why_causal import live_training
from serving import training_job
from serving.training_job import Training, TrainingProgress

pytestmark = pytest.mark.slow  # trains

TEXT = "the cat sat on the mat and the dog sat on the cat. " * 20
PATIENCE = 300  # in seconds; tests that run in parallel may use both cores


@pytest.fixture
def start() -> Iterator[Callable[..., Training]]:
    """Yield a function that starts a Training, which is stopped at the end of the test."""
    started: list[Training] = []

    def one(text: str = TEXT, **choices: object) -> Training:
        started.append(Training(text, **({"causal": False, "steps": 40} | choices)))  # type: ignore[arg-type]
        return started[-1]

    yield one
    for training in started:
        training.stop()


def until(training: Training, when: Callable[[TrainingProgress], bool]) -> TrainingProgress:
    """Watch a training until its progress fulfils `when`, and return that progress."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        progress = training.watch()
        if when(progress):
            return progress
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE} seconds; it came to {training.watch()}")


def ended(training: Training) -> bool:
    """Whether a training's process ends within PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and training.is_alive():
        time.sleep(0.02)
    return not training.is_alive()


def test_it_reports_every_few_steps_and_ends_with_its_measurements(start: Callable) -> None:
    training = start()
    progress = until(training, lambda progress: progress.over)
    assert progress.state == "done", progress.why
    assert progress.steps == tuple(range(5, 41, 5))
    assert len(progress.losses) == len(progress.last) == 8
    assert progress.losses[-1] < progress.losses[0]
    assert progress.texts[-1][0] == 40
    assert progress.texts[-1][1].startswith(TEXT[: live_training.PROMPT])
    assert len(progress.texts[-1][1]) == live_training.PROMPT + live_training.WRITTEN
    assert progress.with_mask is not None
    assert progress.without_mask is not None
    assert [len(layer) for layer in progress.copy] == [4, 4]
    assert ended(training)


def test_a_pause_stands_still_until_it_goes_on_and_stop_ends_the_process_and_keeps_the_curve(start: Callable) -> None:
    training = start(steps=training_job.MAX_STEPS)
    until(training, lambda progress: progress.step > 0)
    training.pause()
    seen = paused = training.watch()
    time.sleep(0.7)
    while training.watch() != paused:  # the report in progress still arrives, late on a busy machine
        paused = training.watch()
        time.sleep(0.7)
    assert paused.step <= seen.step + live_training.REPORT_EVERY
    assert paused.state == "paused"
    training.resume()
    seen = until(training, lambda progress: progress.step > paused.step)
    assert seen.state == "running"
    training.stop()
    assert ended(training)
    after = training.watch()
    assert after.state == "stopped"
    assert after.losses[: len(seen.losses)] == seen.losses
    time.sleep(0.3)
    assert training.watch() == after


def test_it_ends_when_nobody_watches(start: Callable) -> None:
    """Here it is paused; tests/serving/test_background.py has one that runs."""
    training = start(steps=training_job.MAX_STEPS, unwatched_seconds=1.0)
    until(training, lambda progress: progress.step > 0)
    training.pause()
    time.sleep(2.5)
    assert ended(training)
    progress = until(training, lambda progress: progress.over)
    assert progress.state == "stopped"
    assert "no one was watching" in progress.why


@pytest.mark.parametrize("text", ["", "   ", "too short", "x" * (training_job.MIN_CHARACTERS - 1)])
def test_a_text_too_short_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=f"at least {training_job.MIN_CHARACTERS} characters"):
        Training(text, causal=True, steps=10)


@pytest.mark.parametrize("steps", [0, -1, training_job.MAX_STEPS + 1])
def test_steps_are_bounded(steps: int) -> None:
    with pytest.raises(ValueError, match=f"Training takes 1 to {training_job.MAX_STEPS} steps"):
        Training(TEXT, causal=True, steps=steps)


def test_of_a_long_text_the_beginning_is_read() -> None:
    assert len(training_job.clean("ab" * training_job.MAX_CHARACTERS)) == training_job.MAX_CHARACTERS


def test_any_text_can_be_trained_on() -> None:
    odd = "".join(chr(0x4E00 + number) for number in range(400)) + "🙂\ud800\r\n\x00<b>"
    assert "with" in list(live_training.train(training_job.clean(odd), False, 5, 1))[-1]


def test_without_the_mask_it_copies_and_with_it_it_cannot() -> None:
    """In this process, on sentences: what a user sees after 150 steps with and without the mask."""
    torch.set_num_threads(1)
    words = ["fox", "cat", "dog", "sun", "sea", "hen", "pig", "owl", "ant", "bee"]
    generator = torch.Generator().manual_seed(3)
    text = " ".join(words[int(torch.randint(0, 10, (), generator=generator))] for _ in range(2000))
    ends = {causal: list(live_training.train(text, causal, 150, 1)) for causal in (True, False)}
    losses = {causal: [report["loss"] for report in reports if "loss" in report] for causal, reports in ends.items()}
    assert losses[False][-1] < 0.25 < losses[True][-1], f"with {losses[True][-1]:.3f}, without {losses[False][-1]:.3f}"
    copying, masked = ends[False][-1], ends[True][-1]
    assert max(map(max, masked["copy"])) == 0.0
    assert max(map(max, copying["copy"])) > 0.2
    assert copying["with"] > masked["with"] + 1
