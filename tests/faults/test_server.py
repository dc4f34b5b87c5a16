"""A server with little memory, a hub that never answers, and clients that vanish: other users' flips are answered.

All tests share one server with 1.5 GB of memory (RLIMIT_DATA, which its worker has too); it pings its clients every
second.
"""

import asyncio
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from httpx2 import AsyncClient

from tests.benchmarks.reader import Reader, Switch, visiting
from tests.browser.running import free_port, running
from tests.coroutines import finished
from ui.streamlit_internals.files import MAX_UPLOADS, XSRF_COOKIE
from ui.streamlit_internals.selectors import script_files

pytestmark = pytest.mark.slow  # starts servers

MEMORY, PATIENCE = 1_500_000_000, 60
CLICK = 0.2  # seconds between two flips
GONE = 200  # clients that vanish
EXPLORE = Switch("", "causal")
FILES = 300  # soft limit of open files
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""


@dataclass(frozen=True)
class Server:
    address: str
    metrics: int

    @property
    def process(self) -> psutil.Process:
        port = self.address.rpartition(":")[2]
        return next(child for child in psutil.Process().children() if port in child.cmdline())

    def metric(self, line: str) -> float:
        """Return the value of the metric whose line begins with this."""
        with urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return float(next(one for one in lines if one.startswith(line)).split()[-1])

    def sessions(self) -> int:
        with urlopen(f"{self.address}/_stcore/metrics?families=active_sessions") as answer:
            lines = answer.read().decode().splitlines()
        return int(float(next(one for one in lines if one.startswith("active_sessions ")).split()[-1]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, metrics = tmp_path_factory.mktemp("server"), free_port()
    (folder / "sitecustomize.py").write_text(LIMITED.format(memory=MEMORY, files=FILES))  # Python imports it at start
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {
            "PYTHONPATH": str(folder), "HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "HF_HOME": str(folder), "HF_HUB_OFFLINE": "0", "UNMASK_WORKERS": "1", "UNMASK_METRICS_PORT": str(metrics),
            "UNMASK_SHARED": "false",
            "STREAMLIT_SERVER_WEBSOCKET_PING_INTERVAL": "1", "STREAMLIT_SERVER_DISCONNECTED_SESSION_TTL": "1",
        }  # fmt: skip
        with running("serve.py", folder / "log", **environment) as address:
            yield Server(address, metrics)


class Beside:
    """Another user, who flips a mask every CLICK seconds in the background. flips: how often so far."""

    def __init__(self, reader: Reader) -> None:
        self.flips, self._reader, self._over = 0, reader, False

    async def __aenter__(self) -> "Beside":
        await self._reader.open()
        self._flipping = asyncio.ensure_future(self._flip())
        return self

    async def _flip(self) -> None:
        while not self._over:
            await self._reader.flip()  # raises if the page shows an error
            self.flips += 1
            await asyncio.sleep(CLICK)

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await self._flipping


async def refused(server: Server, model: str) -> tuple[str, int]:
    """Return the error that a user gets who asks for a model, and how often another user flipped meanwhile."""
    async with visiting(server.address, EXPLORE, "other words") as other, Beside(other) as beside:
        async with visiting(server.address, EXPLORE, "some words", model=model) as reader:
            with pytest.raises(RuntimeError) as error:
                await reader.open()
        flips = beside.flips
        while beside.flips < flips + 2:
            await asyncio.sleep(0.05)
    return str(error.value), flips


def test_it_takes_its_limit_for_the_machine_s_memory(server: Server) -> None:
    finished(come_and_flip(server))
    assert server.metric('unmask_kept_bytes_limit{what="answers"}') == MEMORY / 10


async def come_and_flip(server: Server) -> None:
    async with visiting(server.address, EXPLORE, "words") as reader:
        await reader.open()
        await reader.flip()


def test_a_model_without_room_is_a_sentence(server: Server, tmp_path: Path) -> None:
    save_large(tmp_path)
    text, flips = finished(refused(server, str(tmp_path)))
    assert "There was not enough memory for this" in text
    assert flips


def save_large(folder: Path) -> None:
    """Save a GPT-2 of 1.4 GB, nearly all of it a hole in a sparse file."""
    width, layers, vocabulary = 1280, 16, 300
    config = {
        "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": 64, "n_embd": width, "n_layer": layers,
        "n_head": 20, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "architectures": ["GPT2LMHeadModel"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    size = 1_400_000_000
    header = json.dumps({"hole": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)


def test_a_hub_that_never_answers_is_a_sentence_within_seconds(server: Server) -> None:
    began = time.monotonic()
    text, flips = finished(refused(server, "some/model"))
    assert "the Hub cannot be reached" in text
    assert flips
    assert time.monotonic() - began < PATIENCE


def test_clients_that_vanish_are_let_go_and_do_no_harm(server: Server) -> None:
    """They shake hands, a few ask for the page, and from then on they send nothing, not even a close frame."""
    files = server.process.num_fds()
    port = int(server.address.rpartition(":")[2])
    gone = [vanishing(port, asks=number % 20 == 0) for number in range(GONE)]
    try:
        assert server.process.num_fds() > FILES
        end = time.monotonic() + PATIENCE
        while server.process.num_fds() > files + 30:
            finished(come_and_flip(server))  # a session that ends also removes expired ones
            time.sleep(CLICK)
            assert time.monotonic() < end, f"{server.sessions()} sessions, {server.process.num_fds()} files of {files}"
        assert server.sessions() == 0
    finally:
        for connection in gone:
            connection.close()


def vanishing(port: int, *, asks: bool) -> socket.socket:
    """Open a WebSocket that is never read. asks: whether it asks for the page."""
    line = socket.create_connection(("127.0.0.1", port))
    line.sendall(
        b"GET /_stcore/stream HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: http://127.0.0.1:%d\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: streamlit\r\n\r\n" % (port, port)
    )
    assert line.recv(12) == b"HTTP/1.1 101"
    if asks:
        message = b"\x5a\x00"  # BackMsg(rerun_script={})
        line.sendall(bytes([0x82, 0x80 | len(message)]) + bytes(4) + message)
    return line


def test_a_message_longer_than_any_of_the_app_s_is_refused_before_it_comes(server: Server) -> None:
    with vanishing(int(server.address.rpartition(":")[2]), asks=False) as line, line.makefile("rb") as answers:
        line.settimeout(PATIENCE)
        line.sendall(struct.pack(">BBQ4x", 0x82, 0x80 | 127, 30_000_000))
        while answers.readline().strip():  # the handshake
            pass
        while answers.read(1) != b"\x88":  # a ping may come before
            answers.read(answers.read(1)[0])
        assert struct.unpack(">xH", answers.read(3)) == (1009,)  # Message Too Big


def test_a_few_of_many_files_that_a_session_uploads_are_kept(server: Server) -> None:
    text = finished(upload_many(server))
    assert text.split()[-1] == str(MAX_UPLOADS)  # bytes


async def upload_many(server: Server) -> str:
    """Upload files of one byte; return Streamlit's metric of the bytes it keeps."""
    browsing = AsyncClient(base_url=server.address)
    async with visiting(server.address, EXPLORE, "words") as reader, browsing as browser:
        await reader.open()
        token = (await browser.get("/_stcore/health")).cookies[XSRF_COOKIE]
        for session, status in ((reader.session, 204), ("another", 400)):
            for number in range(3 * MAX_UPLOADS):
                where, file = f"/_stcore/upload_file/{session}/{number}", {"file": ("a.txt", b"a")}
                answer = await browser.put(where, files=file, headers={"X-Xsrftoken": token})
                assert answer.status_code == status
        lines = (await browser.get("/_stcore/metrics?families=cache_memory_bytes")).text.splitlines()
    return next(line for line in lines if "UploadedFileManager" in line)


def test_a_client_that_reads_nothing_does_not_keep_the_server_from_its_end(tmp_path: Path) -> None:
    with running("serve.py", tmp_path / "log", UNMASK_WORKERS="1") as address, socket.socket() as line:
        server = Server(address, 0).process
        workers = server.children(recursive=True)
        assert workers
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        line.connect(("127.0.0.1", int(address.rpartition(":")[2])))
        line.sendall(f"GET /{script_files()[0]} HTTP/1.1\r\nHost: x\r\n\r\n".encode())  # some MB
        time.sleep(CLICK)  # until its handler waits for the client
        server.terminate()
        server.wait(PATIENCE)
        _, left = psutil.wait_procs(workers, timeout=PATIENCE)
        assert not left


def test_kill_9_of_the_server_leaves_no_process_behind(server: Server) -> None:
    process = server.process
    workers = process.children(recursive=True)
    assert workers
    os.kill(process.pid, 9)
    _, left = psutil.wait_procs(workers, timeout=PATIENCE)
    assert not left
