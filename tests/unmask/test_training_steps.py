"""A training's checkpoints in Python: one by its step, and what a text measures over all."""

from pathlib import Path

import pytest
import torch

import unmask
from tests.model.huggingface import families

STEPS = (3, 20)
TEXT = "the cat sat on a mat and the cat sat"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in STEPS:
        torch.manual_seed(step)
        families.random_network("llama", families.ALL["llama"]).save_pretrained(tmp_path / f"checkpoint-{step}")
    families.save_tokenizer(tmp_path, "$A")
    return tmp_path


def test_every_step_is_measured_as_the_model_alone(folder: Path) -> None:
    found = unmask.checkpoints(str(folder))
    assert found.steps == STEPS
    over = found.measure(TEXT)
    assert {shares.shape for shares in over.shares.values()} == {(2, 3, 4)}
    for place, step in enumerate(STEPS):
        run = unmask.load(str(folder), step=step).run(TEXT)
        assert over.loss[place] == pytest.approx(float(run.trace.losses().nanmean()), rel=1e-5)
        assert over.shares["induction"][place] == pytest.approx(run.measures()["induction"], abs=1e-6)
    assert list(over.to_dataframe().index) == list(STEPS)
    assert "<table" in over._repr_html_()
    assert len(over.head(1, 2).data) == 6  # five patterns and the loss
    assert unmask.load(str(folder)).model.name.endswith("checkpoint-20")


def test_what_is_not_there_is_said(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"out of \[3, 20\], got 4"):
        unmask.load(str(folder), step=4)
    with pytest.raises(ValueError, match=r"expected a folder of checkpoints"):
        unmask.checkpoints("story")
