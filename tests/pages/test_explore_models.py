"""The Explore page with a model that is not available, or from a user's folder."""

import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from model.base import Model
from tests.pages.explore import Explore, same
from ui.sidebar.models import FIRST


class TestModels:
    def test_gpt2_without_a_network(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        addresses: list[object] = []

        def refuse(*address: object, **__: object) -> None:
            addresses.append(address)
            raise socket.gaierror(-3, "Temporary failure in name resolution")

        page = Explore()
        weights = page.weights()
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        close_session()
        page.set(model="gpt2")
        assert not page.boxes("error"), "nothing is asked of the hub before the reader agrees to a download"
        page.press("download")
        assert len(addresses) <= 2, "one short request; the hub's own client would try again for 25 seconds"
        (error,) = page.boxes("error")
        assert "hf download" in error
        assert "gpt2" in error
        assert same(page.weights(), weights), "the page goes on with the story model"
        page.set(causal=False)
        assert len(page.boxes("error")) == 1
        assert not same(page.weights(), weights)

    def test_a_damaged_folder_is_named_and_the_page_goes_on(self, tiny_folder: Path, tmp_path: Path) -> None:
        folder = tmp_path / "mine"
        shutil.copytree(tiny_folder, folder)
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
        page = self.with_folder(folder)
        (error,) = page.boxes("error")
        assert "model.safetensors" in error
        assert str(folder) in error
        assert same(page.weights(), Explore().weights())

    def test_a_folder_that_is_whole_is_shown(self, tiny_folder: Path, tiny: Model) -> None:
        page = self.with_folder(tiny_folder)
        assert not page.boxes("error")
        assert page.packet()[1].shape[:2] == (tiny.num_layers, tiny.num_heads)
        expected = tiny.run(tiny.encode([FIRST])).weights(page["layer"], page["head"]).numpy()
        np.testing.assert_allclose(np.nan_to_num(page.weights()), expected, atol=1e-6)
        page.set(model="story")
        assert same(page.weights(), Explore().weights())

    def test_a_folder_that_is_mended_is_shown_after_trying_again(self, tiny_folder: Path, tmp_path: Path) -> None:
        folder = tmp_path / "mine"
        shutil.copytree(tiny_folder, folder)
        (folder / "config.json").rename(folder / "elsewhere")
        page = self.with_folder(folder)
        assert page.boxes("error")
        (folder / "elsewhere").rename(folder / "config.json")
        (button,) = [one for one in page.app.button if one.label == "Try again"]
        button.click()
        page.run()
        assert not page.boxes("error")

    def test_back_from_a_folder_that_is_not_there_leaves_its_error_behind(self, tmp_path: Path) -> None:
        page = self.with_folder(tmp_path / "mine")
        assert page.boxes("error")
        page.app.query_params.clear()  # Back to the previous link
        assert page.run()["model"] == "story"
        assert not page.boxes("error")

    def test_a_link_to_a_model_not_offered_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("UNMASK_MODELS", "story,dates")
        warnings = Explore(model="gpt2").boxes("warning")
        assert warnings == ["The link names the model gpt2, which is not available here. Choose one of story, dates."]
        assert not Explore().boxes("warning")
        page = Explore(model="gpt2")
        page.set(causal=False)
        assert page.boxes("warning") == warnings
        page.set(model="dates")
        assert not page.boxes("warning")
        monkeypatch.setenv("UNMASK_MODELS", "dates")
        assert not Explore().boxes("warning"), "no link has named the model that a page begins with elsewhere"

    @staticmethod
    def with_folder(folder: Path) -> Explore:
        page = Explore()
        page.set(model="another")
        page.set(other=str(folder))
        return page
