"""Tests of a repository's files: from the cache without a network, or from a Hub with progress, or else an error.

The Hub is a fake one on this machine.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from model.errors import NotAvailable, Stopped
from model.huggingface import hub
from tests.model.huggingface.fake_hub import COMMIT, FakeHub, cache, no_network

FILES = ("config.json", "model.safetensors")
CONTENT = {"config.json": b'{"a": 1}', "model.safetensors": bytes(range(256)) * 41}


@pytest.fixture
def fake(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub({"some/model": CONTENT}) as server:
        server.use(monkeypatch)
        yield server


class TestCache:
    def test_files_in_it_are_found_without_any_network(self, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = cache(hub_cache, "some/model", CONTENT)
        no_network(monkeypatch)
        assert hub.cached("some/model", FILES) == folder
        assert hub.download("some/model", FILES) == folder

    def test_and_offline_too(self, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = cache(hub_cache, "some/model", CONTENT)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert hub.download("some/model", FILES) == folder

    def test_half_of_the_files_are_not_enough(self, hub_cache: Path) -> None:
        cache(hub_cache, "some/model", {"config.json": b"{}"})
        assert hub.cached("some/model", FILES) is None
        assert hub.cached("some/model", FILES[:1]) is not None

    def test_a_file_known_to_be_missing_is_not_a_file(self, hub_cache: Path) -> None:
        cache(hub_cache, "some/model", {"config.json": b"{}"})
        note = hub_cache / "models--some--model" / ".no_exist" / COMMIT / "model.safetensors"
        note.parent.mkdir(parents=True)
        note.touch()
        assert hub.cached("some/model", FILES) is None

    def test_another_repository_is_not_there(self, hub_cache: Path) -> None:
        cache(hub_cache, "some/model", CONTENT)
        assert hub.cached("another/model", FILES) is None


class TestDownload:
    def test_the_files_arrive_and_progress_is_reported(self, fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
        reports: list[tuple[str, int, int]] = []
        folder = hub.download("some/model", FILES, lambda *report: reports.append(report))
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
        for name, content in CONTENT.items():
            sizes = [size for file, size, _ in reports if file == name]
            assert sizes == sorted(sizes)
            assert sizes[-1] == len(content)
            assert {total for file, _, total in reports if file == name} == {len(content)}
        assert len([report for report in reports if report[0] == "model.safetensors"]) >= 10

    def test_nothing_is_written_to_the_screen(self, fake: FakeHub, capfd: pytest.CaptureFixture[str]) -> None:
        hub.download("some/model", FILES, lambda *_: None)
        assert "".join(capfd.readouterr()) == ""

    def test_the_second_time_the_hub_is_not_asked(self, fake: FakeHub) -> None:
        hub.download("some/model", FILES)
        count = len(fake.requests)
        assert count > 0
        assert hub.download("some/model", FILES) == hub.cached("some/model", FILES)
        assert len(fake.requests) == count

    def test_what_progress_raises_stops_it(self, fake: FakeHub) -> None:
        class StopError(Exception):
            pass

        def stop(name: str, size: int, total: int) -> None:
            if name == "model.safetensors":
                raise StopError

        with pytest.raises(StopError):
            hub.download("some/model", FILES, stop)
        assert hub.cached("some/model", FILES) is None
        assert hub.cached("some/model", FILES[:1]) is not None

    def test_a_client_that_reports_again_after_it_was_stopped(
        self, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class StopError(Exception):
            pass

        def stop(*_: object) -> None:
            raise StopError

        def deaf(repo: str, name: str, tqdm_class: Callable[..., Any], token: bool) -> str:
            for _ in range(2):
                with suppress(Stopped):
                    tqdm_class(total=2).update(1)
            ended.set()
            return name

        ended = threading.Event()
        monkeypatch.setattr(hub, "hf_hub_download", deaf)
        with pytest.raises(StopError):
            hub.download("some/model", FILES, stop)
        assert ended.wait(5), "its thread waits for ever, with the lock of the file"

    def test_a_broken_connection_is_said(self, fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the client waits between its retries
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
        fake.breaks_after = 5000
        with pytest.raises(NotAvailable, match=r"download of some/model was interrupted .* Try again"):
            hub.download("some/model", FILES)
        fake.breaks_after = None
        reported: list[str] = []
        folder = hub.download("some/model", FILES, lambda name, size, total: reported.append(name))
        assert (folder / "model.safetensors").read_bytes() == CONTENT["model.safetensors"]
        assert set(reported) == {"model.safetensors"}

    @pytest.mark.parametrize("pause", [pytest.param(60.0, id="a byte and no more"), pytest.param(0.01, id="a trickle")])
    def test_a_hub_that_sends_nothing(self, fake: FakeHub, monkeypatch: pytest.MonkeyPatch, pause: float) -> None:
        fake.pause = pause

        class StopError(Exception):
            """Error raised as when a user presses Stop."""

        def stop(*_: object) -> None:
            raise StopError

        monkeypatch.setattr(hub, "PATIENCE", 60.0)
        with pytest.raises(StopError):
            hub.download("some/model", FILES[1:], stop)
        monkeypatch.setattr(hub, "PATIENCE", 0.5)
        for _ in range(2):  # what the first attempt left does not prevent the next
            with pytest.raises(NotAvailable, match=r"^The download of some/model was stopped: no data .* for 0\.5 sec"):
                hub.download("some/model", FILES[1:])

    def test_a_hub_that_goes_away_between_two_files(self, fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        with pytest.raises(NotAvailable, match="was interrupted"):
            hub.download("some/model", FILES, lambda name, size, total: fake.close())


class TestWhatCannotBeHad:
    HOW = "hf download some/model"

    def refused(self, repo: str = "some/model", files: tuple[str, ...] = FILES) -> str:
        """Return the error message, which must come within two seconds."""
        began = time.monotonic()
        with pytest.raises(NotAvailable) as caught:
            hub.download(repo, files)
        seconds = time.monotonic() - began
        assert seconds < 2, f"it took {seconds:.1f} seconds"
        assert repo in str(caught.value)
        return str(caught.value)

    def test_a_name_that_is_looked_up_for_ever(self, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        done = threading.Event()

        def hang(*_: object, **__: object) -> list[object]:
            done.wait(30)
            raise socket.gaierror("looked up for ever")

        close_session()
        monkeypatch.setattr(socket, "getaddrinfo", hang)
        try:
            message = self.refused()
        finally:
            done.set()
        assert "cannot be reached" in message
        assert self.HOW in message

    def test_a_repository_that_is_not_there(self, fake: FakeHub) -> None:
        assert "has no public model another/model" in self.refused("another/model")

    def test_a_repository_behind_a_gate(self, fake: FakeHub) -> None:
        fake.gated.add("some/model")
        message = self.refused()
        assert "gated" in message
        assert "hf auth login" in message

    @pytest.mark.parametrize(
        ("files", "text"),
        [
            (("no.json",), "some/model has no file no.json"),
            (("config.json", "no.json"), "some/model has no config.json, no.json"),
        ],
        ids=["the first", "a later one"],
    )
    def test_a_file_that_is_not_there(self, fake: FakeHub, files: tuple[str, ...], text: str) -> None:
        assert text in self.refused(files=files)

    @pytest.mark.parametrize("status", [403, 429, 500])
    def test_a_hub_in_trouble(self, fake: FakeHub, status: int) -> None:
        fake.status = status
        message = self.refused()
        assert "the Hub did not send it (" in message
        assert str(status) in message
        assert "Try again in a few minutes" in message
        assert "online" not in message, "it is"

    def test_a_page_of_a_hotel_instead_of_the_hub(self, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Welcome(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_HEAD

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Welcome)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        FakeHub.point_at(monkeypatch, server.server_port)
        try:
            self.refused()
        finally:
            server.shutdown()
            server.server_close()
