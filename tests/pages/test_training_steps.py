"""A folder of checkpoints as Hugging Face's Trainer writes them: a slider and a chart over its training steps."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

import unmask
from model import catalog
from model.heads.survey import step_measures
from serving.settings import Settings
from tests.apptest import charts
from tests.model.huggingface import families
from tests.pages.page import array
from ui import results

ROOT = Path(__file__).parents[2]
STEPS = (5, 20, 100)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints of different weights; only their folder has the tokenizer, as without processing_class."""
    folder = tmp_path_factory.mktemp("trained")
    for step in STEPS:
        torch.manual_seed(step)
        families.random_network("llama", families.ALL["llama"]).save_pretrained(folder / f"checkpoint-{step}")
    families.save_tokenizer(folder, "$A")
    (folder / "checkpoint-7.zip").write_bytes(b"")
    (folder / "runs").mkdir()
    return folder


def opened(folder: Path, **query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in {"model": str(folder), "text": "the cat sat on the cat sat", **query}.items():
        app.query_params[name] = value
    return app.run()


def test_the_steps_of_a_folder_are_found_in_their_order(trained: Path) -> None:
    found = catalog.steps(str(trained), Settings())
    assert list(found.values()) == list(STEPS)
    assert catalog.steps(str(trained / "checkpoint-5"), Settings()) == catalog.steps("story") == {}
    assert catalog.steps(str(trained), Settings(model_root=trained / "runs")) == {}  # outside of model_root: not listed


def test_a_checkpoint_without_the_head_has_no_point(tmp_path: Path) -> None:
    for step, layers in ((5, 1), (20, 3)):
        config = copy.deepcopy(families.ALL["gpt2"])
        config.n_layer = layers
        families.save("gpt2", tmp_path / f"checkpoint-{step}", config)
    app = opened(tmp_path, over_steps="true", layer="2", head="1")
    assert not app.exception
    drawn = next(data for key, data in charts(app).items() if key.startswith("steps_over"))["figure"]["data"]
    lines = {line["name"]: array(line["y"]) for line in drawn}
    assert np.isnan(lines["first token"]).tolist() == [True, False]
    assert np.isfinite(lines["loss, nats/token"]).all()
    with pytest.raises(ValueError, match=r"as many layers and heads, got \[\(1, 4\), \(3, 4\)\]"):
        unmask.checkpoints(str(tmp_path)).measure("the cat sat")


def test_the_model_of_the_folder_itself_comes_last(trained: Path, tmp_path: Path) -> None:
    families.save("llama", tmp_path)
    (tmp_path / "checkpoint-3").symlink_to(trained / "checkpoint-5")
    assert catalog.steps(str(tmp_path)) == {str(tmp_path / "checkpoint-3"): 3, str(tmp_path): None}


def test_the_slider_begins_at_the_last_step_and_the_link_has_another(trained: Path) -> None:
    app = opened(trained)
    assert not app.exception
    slider = app.select_slider(key="training_step")
    assert (slider.options, slider.value) == (["5", "20", "100"], 100)
    slider.set_value(20).run()
    assert not app.exception
    assert app.query_params["training_step"] in ("20", ["20"])
    assert app.query_params["model"] in (str(trained), [str(trained)])
    assert any("checkpoint-20" in caption.value for caption in app.caption)
    assert opened(trained, training_step="5").select_slider(key="training_step").value == 5
    assert opened(trained, training_step="6").select_slider(key="training_step").value == 100


def test_what_the_trainer_logged_is_read_again_only_if_its_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (5, 20):
        families.save("llama", tmp_path / f"checkpoint-{step}")
    state, reads, read = tmp_path / "checkpoint-20" / "trainer_state.json", [], catalog.logged_losses
    monkeypatch.setattr(catalog, "logged_losses", lambda *given: (reads.append(given), read(*given))[1])
    app = opened(tmp_path, over_steps="true")
    app.run()
    assert len(reads) == 1
    state.write_text('{"log_history": [{"step": 5, "loss": 2.5}]}')
    app.run()
    assert len(reads) == 2
    drawn = next(data for key, data in charts(app).items() if key.startswith("steps_over"))["figure"]["data"]
    assert "training loss, as logged" in {line["name"] for line in drawn}


def test_the_chart_has_every_checkpoints_own_numbers_and_few_models_stay_in_memory(trained: Path) -> None:
    app = opened(trained, over_steps="true", layer="1", head="2", training_step="20")
    assert not app.exception
    drawn = next(data for key, data in charts(app).items() if key.startswith("steps_over"))["figure"]["data"]
    lines = {line["name"]: (array(line["x"]), array(line["y"])) for line in drawn}
    for index, step in enumerate(STEPS):
        model = catalog.load(str(trained / f"checkpoint-{step}"), settings=Settings())
        trace = model.run(model.encode(["the cat sat on the cat sat"]))
        found = step_measures(trace, 0, model.standard, predicts=True)
        assert found.loss == pytest.approx(float(trace.losses().nanmean()))
        assert lines["loss, nats/token"][1][index] == pytest.approx(found.loss, rel=1e-5)
        assert (lines["first token"][0][index], lines["first token"][1][index]) == (
            step, pytest.approx(found.shares["first"][1, 2], rel=1e-5),
        )  # fmt: skip
        assert found.shares["first"][1, 2] == pytest.approx(float(trace.weights(1, 2)[1:, 0].mean()), abs=1e-6)
    assert len(results.engine().models._models) <= results.engine().models._most


def test_the_model_that_ships_with_its_checkpoints_has_the_slider_too() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["model"] = "induction"
    assert app.run().select_slider(key="training_step").value == 1500
    app.select_slider(key="training_step").set_value(450).run()
    assert not app.exception
    assert not app.error
    assert any(caption.value.startswith("induction-450: a decoder") for caption in app.caption)
    hosted = Settings(models=("induction",))
    catalog.check_offered("induction-450", hosted)
    for other in ("induction-451", "story"):
        with pytest.raises(ValueError, match="is not available here"):
            catalog.check_offered(other, hosted)
