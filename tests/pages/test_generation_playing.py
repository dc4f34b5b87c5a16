"""The Generation page while it plays, without a browser: one token at a time, each by one cached step."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from model import kv_cache
from model.base import Model
from model.gpt2 import save_transformer
from model.sampling import MAX_WRITTEN
from model.transformer import Transformer, TransformerConfig
from serving.job import ModelRef
from tests.pages.generation import Generation, written_by
from ui import results
from ui.generation import writing
from ui.generation.writing import Writing
from ui.sidebar import models


class TestPlaying:
    def test_adds_a_token_each_time_until_it_is_paused(self, story: Model) -> None:
        page = Generation().press("play")
        assert len(page.path.written) == 1
        buttons = page.buttons()
        assert not any(on for key, on in buttons.items() if key.startswith("candidate_"))
        assert (buttons["step"], buttons["play"], buttons["start_over"]) == (False, True, True)
        assert page.app.button(key="play").label == "Pause"
        assert "Pause" in page.words()
        time.sleep(0.45)
        assert len(page.run().path.written) == 2
        assert len(page.run().path.written) in (2, 3), "a rerun before it is time adds nothing"
        page.press("play")
        path = page.path
        time.sleep(0.45)
        assert page.run().path == path == written_by(story, len(path.written))
        assert page.buttons()["step"]

    def test_ends_where_the_page_has_no_room_left(self, story: Model) -> None:
        page = Generation()
        full = written_by(story, 0)
        for _ in range(MAX_WRITTEN - 1):
            full = full.plus(300)
        before = page.app.session_state.writing
        page.app.session_state.writing = replace(before, path=full, chances=(0.5,) * len(full.written))
        page.run().press("play")
        assert len(page.path.written) == MAX_WRITTEN
        page.run()
        assert not page.app.session_state.writing.playing
        assert "200 tokens are generated, the maximum" in page.words()
        buttons = page.buttons()
        assert (buttons["step"], buttons["play"], buttons["back"]) == (False, False, True)

    def test_is_found_paused_when_the_page_was_left_for_long(self) -> None:
        page = Generation().press("play")
        long_ago = replace(page.app.session_state.writing, last=time.monotonic() - 100)
        page.app.session_state.writing = long_ago
        page.run()
        assert not page.app.session_state.writing.playing
        assert len(page.path.written) == 1

    def test_two_readers_write_apart(self) -> None:
        one, other = Generation().press("play"), Generation("The king said")
        assert not other.path.written
        other.press("step")
        assert isinstance(one.app.session_state.writing, Writing)
        assert one.path.prompt != other.path.prompt

    def test_a_slow_machine_writes_no_two_tokens_at_one_press(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writing, "SECONDS", 0.0)  # as if a token took longer than the interval
        page = Generation().press("play")
        assert len(page.path.written) == 1
        assert len(page.run().path.written) == 2

    def test_a_cached_step_is_one_step(
        self, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A wide model on a long text: its trace of over 64 MiB was once dropped, and every token was recomputed."""
        config = TransformerConfig(vocabulary=283, context=1024, layers=10, heads=2, width=576, mlp_width=8)
        save_transformer(Transformer(config), tmp_path)
        shutil.copy(tiny_folder / "tokenizer.json", tmp_path)
        page = Generation("abcdefgh" * 124, model=str(tmp_path)).press("play")
        model = models.get(str(tmp_path))
        trace = results.engine().traces.find(page.app.session_state.grown[0])
        assert trace.nbytes() > 64 * 2**20
        steps, runs = [], []
        step, whole = kv_cache.step, type(model).run
        monkeypatch.setattr(kv_cache, "step", lambda *given: (steps.append(given), step(*given))[1])
        monkeypatch.setattr(type(model), "run", lambda *given: (runs.append(given), whole(*given))[1])
        for written in (2, 3):
            time.sleep(0.45)
            assert len(page.run().path.written) == written
        assert (len(steps), len(runs)) == (2, 0)
        key = (ModelRef.of(model), "grown", page.path.ids)
        assert page.app.session_state.grown[0] == key, "a reader's session holds a key alone, no tensors"
