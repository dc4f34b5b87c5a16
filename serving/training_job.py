"""Live training of a small model on a user's text, as a background job (model/why_causal/live_training.py)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from i18n import N_, msg
from serving.background import UNWATCHED_SECONDS, Background, State

MAX_STEPS = 600
MIN_CHARACTERS, MAX_CHARACTERS = 200, 40_000
TEXT_TOO_SHORT = N_("Training needs a text of at least {least} characters; this one has {count}.")


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training. Losses are means of a few steps, in nats per character.

    steps, losses, last: the curve so far; last is the loss of each row's last target alone. texts: generated samples,
    as (step, text). with_mask, without_mask: at the end, the loss under either mask. copy: at the end, each head's mean
    weight on the next character, [L][H]. state, why: as in JobProgress.
    """

    state: State = "starting"
    steps: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()
    last: tuple[float, ...] = ()
    texts: tuple[tuple[int, str], ...] = ()
    with_mask: float | None = None
    without_mask: float | None = None
    copy: tuple[tuple[float, ...], ...] = ()
    why: str = ""

    @property
    def over(self) -> bool:
        return self.state in ("done", "stopped", "failed")

    @property
    def best_copy(self) -> tuple[float, int, int]:
        """The highest copy score at the end of training, with its layer and head."""
        return max((score, layer, head) for layer, heads in enumerate(self.copy) for head, score in enumerate(heads))

    @property
    def step(self) -> int:
        """The last step reported."""
        return self.steps[-1] if self.steps else 0


class Training(Background):
    """A training. Raises ValueError for a text too short or steps out of range, TooManyBackgroundJobs for a full queue.

    causal: whether it is trained with the causal mask. Of a longer text the first MAX_CHARACTERS are read.
    unwatched_seconds: the training ends after this time without a call of `watch`.
    """

    def __init__(
        self, text: str, *, causal: bool, steps: int, seed: int = 1, unwatched_seconds: float = UNWATCHED_SECONDS
    ) -> None:
        text = clean(text)
        if len(text) < MIN_CHARACTERS:
            raise ValueError(msg(TEXT_TOO_SHORT, least=MIN_CHARACTERS, count=len(text)))
        if not 1 <= steps <= MAX_STEPS:
            raise ValueError(msg("Training takes 1 to {most} steps here, not {steps}.", most=MAX_STEPS, steps=steps))
        self.causal, self.total_steps = causal, steps
        super().__init__(_train, text, causal, steps, seed, unwatched_seconds=unwatched_seconds)

    def watch(self) -> TrainingProgress:
        """Return the progress, and restart the `unwatched_seconds` after which the training ends."""
        poll = self.poll()
        curve = [one for one in poll.reports if "loss" in one]
        last: dict[str, Any] = next((one for one in poll.reports if "copy" in one), {})
        return TrainingProgress(
            state=poll.state,
            steps=tuple(one["step"] for one in curve),
            losses=tuple(one["loss"] for one in curve),
            last=tuple(one["last"] for one in curve),
            texts=tuple((one["step"], one["text"]) for one in poll.reports if "text" in one),
            with_mask=last.get("with"),
            without_mask=last.get("without"),
            copy=tuple(map(tuple, last.get("copy", ()))),
            why=poll.why,
        )


def clean(text: str) -> str:
    """Return the part of a text that is trained on: its first MAX_CHARACTERS, line ends as one character."""
    return text[:MAX_CHARACTERS].replace("\r\n", "\n").encode("utf-8", "replace").decode("utf-8").strip()


def _train(report: Callable[[dict[str, Any]], None], text: str, causal: bool, steps: int, seed: int) -> None:
    """Train. Called in a separate process; the import of torch is left to that process."""
    from model.why_causal import live_training

    for progress in live_training.train(text, causal, steps, seed):
        report(progress)
