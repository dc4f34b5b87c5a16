"""Training while somebody watches: one small model on one reader's text, in a process of its own (live_worker.py).

A training belongs to the reader who started it. It ends with its steps, when it is stopped, or when nobody has called
`watch` for LEFT_SECONDS; a process for each keeps it from holding up anybody else's page.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, RLock, Thread
from typing import Any, Literal

ROOT = Path(__file__).parents[2]
MOST_AT_ONCE = 2  # trainings in this process
MOST_STEPS = 600
LEAST_CHARACTERS, MOST_CHARACTERS = 200, 40_000
MOST_SECONDS = 300.0  # from start to end, pauses and all
LEFT_SECONDS = 10.0  # many times the pause between two looks of a page

# the job is read before torch is imported, which takes seconds: whoever writes it need not wait for that
WORKER = f"import sys; job = sys.stdin.readline(); from {__package__} import live_worker; live_worker.main(job)"

State = Literal["starting", "running", "paused", "done", "stopped", "failed"]


class Busy(ValueError):
    """As many trainings run as may run at once."""


@dataclass(frozen=True)
class Progress:
    """What a training has come to. Losses are means of a few steps, in nats a character.

    steps, losses, last: the curve so far; last is the loss of each row's last target alone. texts: what it wrote, as
    (step, text). with_mask, without_mask: at the end, the loss under either mask. copy: at the end, each head's mean
    weight on the next character, [L][H]. why: one sentence, for a training that stopped or failed.
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
        """At the end, the highest copy score, and the layer and head that has it."""
        return max((score, layer, head) for layer, heads in enumerate(self.copy) for head, score in enumerate(heads))

    @property
    def step(self) -> int:
        """The last one heard of."""
        return self.steps[-1] if self.steps else 0


class Training:
    """One of them. Raises ValueError for a text too short or steps out of range, Busy when there is no room.

    causal: whether it is trained with the causal mask. Of a longer text the first MOST_CHARACTERS are read.
    left_seconds: after how many without `watch` it ends.
    """

    def __init__(
        self, text: str, *, causal: bool, steps: int, seed: int = 1, left_seconds: float = LEFT_SECONDS
    ) -> None:
        text = clean(text)
        if len(text) < LEAST_CHARACTERS:
            raise ValueError(
                f"A text of at least {LEAST_CHARACTERS} characters is needed to train on, this one has {len(text)}."
            )
        if not 1 <= steps <= MOST_STEPS:
            raise ValueError(f"From 1 to {MOST_STEPS} steps can be trained here, not {steps}.")
        self.causal, self.total_steps = causal, steps
        self._progress, self._lock, self._began = Progress(), RLock(), time.monotonic()
        self._writing = (
            Lock()
        )  # a reader's page, its buttons and the listener are threads of their own, the pipe is one
        with _counting:
            _running[:] = [other for other in _running if other.is_alive()]
            if len(_running) >= MOST_AT_ONCE:
                raise Busy(
                    f"{MOST_AT_ONCE} trainings run here already, as many as this server takes at once. "
                    "Try again in a minute."
                )
            self._process = _start()
            _running.append(self)
        job = {"text": text, "causal": causal, "steps": steps, "seed": seed, "left_seconds": left_seconds}
        self._send(json.dumps(job))
        Thread(target=self._listen, daemon=True).start()

    def watch(self) -> Progress:
        """What it has come to; also tells it that somebody is there."""
        if time.monotonic() - self._began > MOST_SECONDS:
            self.stop(f"Stopped after {MOST_SECONDS / 60:.0f} minutes, the most that one training may take.")
        self._send("beat")
        with self._lock:
            return self._progress

    def pause(self) -> None:
        self._send("pause")
        self._change(state="paused")

    def go_on(self) -> None:
        self._send("go")
        self._change(state="running")

    def stop(self, why: str = "Stopped.") -> None:
        """At once; what it has come to stays."""
        self._change(state="stopped", why=why)
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)  # so that its place is free for the next one

    def is_alive(self) -> bool:
        """Whether its process still runs."""
        return self._process.poll() is None

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with self._writing, suppress(OSError, ValueError):  # it has ended; _listen says how
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(json.JSONDecodeError):  # the last line of a process that was killed while it wrote
                self._hear(json.loads(line))
        code = self._process.wait()
        with self._writing:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    _close(pipe)
        if self._progress.copy:
            self._change(state="done")
        elif code == 0:
            self._change(state="stopped", why="Stopped, because nobody was watching.")
        else:
            self._change(state="failed", why="The training ended before it was done. Start it again.")

    def _hear(self, report: dict[str, Any]) -> None:
        with self._lock:
            now = self._progress
            if now.state == "starting":
                self._change(state="running")
            if "loss" in report:
                self._change(
                    steps=(*now.steps, report["step"]),
                    losses=(*now.losses, report["loss"]),
                    last=(*now.last, report["last"]),
                )
            elif "text" in report:
                self._change(texts=(*now.texts, (report["step"], report["text"])))
            elif "copy" in report:
                copy = tuple(map(tuple, report["copy"]))
                self._change(with_mask=report["with"], without_mask=report["without"], copy=copy)

    def _change(self, **fields: Any) -> None:
        """Nothing changes the state once it is over."""
        with self._lock:
            if self._progress.over:
                fields.pop("state", None)
                fields.pop("why", None)
            self._progress = replace(self._progress, **fields)


_running: list[Training] = []  # counted, never shown: whose they are is no business of other readers
_counting = Lock()


def clean(text: str) -> str:
    """The part of a text that is trained on: its first MOST_CHARACTERS, line ends as one character."""
    return text[:MOST_CHARACTERS].replace("\r\n", "\n").encode("utf-8", "replace").decode("utf-8").strip()


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )


def _close(pipe: Any) -> None:
    with suppress(OSError):  # a word was on its way to a process that had ended
        pipe.close()
