"""A local stand-in for the Hugging Face Hub, as far as downloads need it, and a cache with files."""

import hashlib
import re
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cache(folder: Path, repo: str, files: Mapping[str, bytes]) -> Path:
    """Lay files out as the Hub's own client does, and return the folder that holds them."""
    root = folder / ("models--" + repo.replace("/", "--"))
    snapshot = root / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(COMMIT)
    for name, content in files.items():
        (snapshot / name).write_bytes(content)
    return snapshot


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make any attempt to reach a machine, this one included, fail the test."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("the network was used")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


class FakeHub:
    """Server of repositories, {"owner/name": {file: content}}, for this process's Hub client while it is open.

    requests: "METHOD path" of each request. tokens: the Authorization headers received. gated: repositories that
    require a login. status: the status of all answers, if not None.
    breaks_after: how many bytes of a file are sent before the connection is closed. pause: seconds from one byte of a
    file to the next.
    """

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]]) -> None:
        self.repos = repos
        self.requests: list[str] = []
        self.tokens: list[str] = []
        self.gated: set[str] = set()
        self.status: int | None = None
        self.breaks_after: int | None = None
        self.pause = 0.0
        self.closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._open = True

    def __enter__(self) -> "FakeHub":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self.closed.set()
            self._server.shutdown()
            self._server.server_close()
            close_session()  # a connection kept alive would still be answered

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.point_at(monkeypatch, self._server.server_port)

    @staticmethod
    def point_at(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
        """Set the endpoint as HF_ENDPOINT does, for a client that has already read its environment."""
        endpoint = f"http://127.0.0.1:{port}"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        close_session()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(lambda content, begin: None)

        def do_GET(self) -> None:
            self.answer(self.send)

        def answer(self, send: Callable[[bytes, int], None]) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            hub.tokens += self.headers.get_all("Authorization", [])
            match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path)
            repo, name = match.groups() if match else ("", "")
            if hub.status is not None:
                self.refuse(hub.status, "")
            elif repo not in hub.repos:
                self.refuse(404, "RepoNotFound")
            elif repo in hub.gated:
                self.refuse(403, "GatedRepo")
            elif name not in hub.repos[repo]:
                self.refuse(404, "EntryNotFound")
            else:
                content = hub.repos[repo][name]
                begin = int(re.sub(r"\D", "", self.headers.get("Range", "0")))
                self.send_response(206 if begin else 200)
                self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("X-Xet-Hash", "0" * 64)  # as nearly all weights on the Hub have
                self.send_header("X-Xet-Refresh-Route", "/no/such/storage")
                self.send_header("Content-Length", str(len(content) - begin))
                if begin:
                    self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
                self.end_headers()
                send(content, begin)

        def send(self, content: bytes, begin: int) -> None:
            if hub.breaks_after is not None and len(content) > hub.breaks_after:
                self.close_connection = True
                content = content[: hub.breaks_after]
            for number in range(begin, len(content)) if hub.pause else ():
                self.wfile.write(content[number : number + 1])
                if hub.closed.wait(hub.pause):
                    return
            self.wfile.write(b"" if hub.pause else content[begin:])

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    return Handler
