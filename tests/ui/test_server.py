"""The app as a server: headers, health, metrics, what its log contains, and that it writes nothing to its folder."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg

from serving import health
from serving.headers import headers
from serving.settings import Settings
from tests.benchmarks.reader import Switch, visiting
from tests.browser.running import ROOT, free_port, running
from tests.coroutines import finished

pytestmark = pytest.mark.slow  # starts servers

FOLDERS = ("model", "mask_check", "serving", "viz", "ui", "pages", "lessons", "locale", ".streamlit")
TEXT, TOKEN = "zanzibarian words", "hf_zanzibarian"
COURSES = "'self' https://courses.example.org"
READY_SECONDS = 60


@dataclass(frozen=True)
class Server:
    address: str
    port: int
    folder: Path
    files: set[str]
    log: Path


def files_in(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve a copy of the app that one user has visited."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "training"))
    for name in ("app.py", "serve.py", "i18n.py"):
        shutil.copy(ROOT / name, folder / name)
    before, log, port = files_in(folder), folder.with_name("log"), free_port()
    environment = {
        "PYTHONDONTWRITEBYTECODE": "1", "HF_TOKEN": TOKEN, "UNMASK_METRICS_PORT": str(port),
        "UNMASK_FRAME_ANCESTORS": COURSES,
    }  # fmt: skip
    with running(str(folder / "serve.py"), log, cwd=folder, **environment) as address:
        finished(visit(address))
        yield Server(address, port, folder, before, log)


async def visit(address: str, text: str = TEXT) -> None:
    async with visiting(address, Switch("", "causal"), text) as reader:
        await reader.open()
        await reader.flip()


def get(port: int, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        return answer.read().decode()


def status_of(port: int, path: str) -> int:
    try:
        get(port, path)
    except HTTPError as error:
        return error.code
    return 200


@pytest.mark.parametrize("path", ["/", "/mask_lab", "/_stcore/health"])
def test_every_answer_says_what_browsers_may_do(server: Server, path: str) -> None:
    with urlopen(server.address + path) as answer:
        assert {name: answer.headers[name] for name in headers(COURSES)} == headers(COURSES)
        assert f"frame-ancestors {COURSES}" in answer.headers["Content-Security-Policy"]


def test_it_lives_gets_ready_and_counts_what_its_reader_asked(server: Server) -> None:
    assert get(server.port, "/live") == "ok\n"
    end = time.monotonic() + READY_SECONDS  # a busy machine is not ready at once
    while (status := status_of(server.port, "/ready")) == 503 and time.monotonic() < end:
        time.sleep(0.2)
    assert status == 200
    metrics = get(server.port, "/metrics")
    assert 'unmask_jobs_total{job="model.heads.survey.survey",outcome="done"} 2.0' in metrics
    assert "zanzibar" not in metrics
    assert status_of(server.port, "/secrets") == 404


def test_a_reader_who_clears_streamlit_s_caches_stops_nobody(server: Server) -> None:
    async def clear() -> None:
        async with visiting(server.address, Switch("", "causal"), "other words") as reader:
            await reader.open()
            await reader.flip()
            await reader._socket.send(BackMsg(clear_cache=True).SerializeToString())

    def flips() -> float:
        line = 'unmask_jobs_total{job="model.heads.survey.survey",outcome="done"} '
        return float(get(server.port, "/metrics").partition(line)[2].split()[0])

    before = flips()
    finished(clear())
    finished(visit(server.address, "words of another"))
    end = time.monotonic() + READY_SECONDS
    while flips() < before + 4:  # a job is counted after its answer is sent
        assert time.monotonic() < end
        time.sleep(0.05)
    assert status_of(server.port, "/ready") == 200


def test_its_log_holds_no_text_and_no_token(server: Server) -> None:
    urlopen(f"{server.address}/?text=zanzibarian").close()
    log = server.log.read_text()
    assert server.address in log
    assert "zanzibar" not in log


def test_it_writes_nothing_into_its_folder(server: Server) -> None:
    assert files_in(server.folder) == server.files


RAISING = """
import gc, logging, threading, warnings
import streamlit as st
from ui import page
page.set_up("Explore")
text = st.query_params["text"]
logging.getLogger("streamlit.made_later").warning("told: %s", text)
logging.getLogger("streamlit.runtime").error(f"told: {text}")
warnings.warn(text)
def end(): raise KeyError(text)
thread = threading.Thread(target=end)
thread.start()
thread.join()
class Gone:
    def __del__(self): end()
Gone()
try:
    end()
except KeyError as error:
    raise LookupError(text) from error
"""


@pytest.mark.parametrize("script", ["app.py", "serve.py"])
def test_of_an_error_the_log_holds_its_kind_and_lines_and_of_no_logger_a_text(server: Server, script: str) -> None:
    log = server.folder.with_name(f"log of {script}")
    page = server.folder / "pages" / "raising.py"
    page.write_text(RAISING)

    async def visit_it(address: str) -> None:
        async with visiting(address, Switch("raising", ""), TEXT) as reader:
            with pytest.raises(RuntimeError):
                await reader.open()

    try:
        with running(str(server.folder / script), log, STREAMLIT_LOGGER_ENABLE_RICH="true") as address:
            finished(visit_it(address))
    finally:
        page.unlink()
    text = log.read_text()
    assert "zanzibar" not in text
    assert ": LookupError\n" in text
    assert 'raising.py", line 20' in text
    assert text.count(": KeyError\n") == 2, "of the thread, and of the object that could not be ended"
    assert "pages/raising.py:8" in text, "the warning"


def test_a_check_that_finds_something_is_503_and_tells_it() -> None:
    statuses: list[str] = []
    app = health.health_app({"/live": lambda: "", "/ready": lambda: "no model"}, lambda environment, start: [b"7"])

    def ask(path: str) -> bytes:
        return b"".join(app({"PATH_INFO": path}, lambda status, headers: statuses.append(status)))

    assert [ask(path) for path in ("/live", "/ready", "/metrics")] == [b"ok\n", b"no model\n", b"7"]
    assert statuses == ["200 OK", "503 Service Unavailable"]


@pytest.mark.parametrize(
    "given",
    ["localhost", "redis://", "redis://a@", "redis://a..b", "redis://localhost:x", "redis://a:b@c:d/0",
     "rediss://[::1]:", "redis://a:99999", "redis://a/b", "redis://a?db=x", "redis://a?foo=1",
     "redis://a/0?decode_responses=1", "redis://a#b"],
)  # fmt: skip
def test_a_redis_has_an_address_with_numbers_for_port_and_database_and_no_options(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for right in ("", "redis://localhost", "rediss://:p@ss:w@cache.example.org:6379/0", "redis://[::1]:6379/"):
        monkeypatch.setenv("UNMASK_ROOMS", right)
        assert Settings.from_environment().rooms == right
    monkeypatch.setenv("UNMASK_ROOMS", given)
    words = r"^UNMASK_ROOMS: expected redis://HOST:PORT/DATABASE or .* \(PORT at most 65535, no \?options\), got "
    with pytest.raises(ValueError, match=words):
        Settings.from_environment()


@pytest.mark.parametrize(
    ("given", "shown"),
    [("redis://:secret@host:99999", "redis://…@host:99999"), ("redis://me:a@secret@host:x", "redis://…@host:x"),
     ("me:secret@host", "…@host"), ("redis://h:99999?password=secret", "redis://h:99999?…"),
     ("redis://h?password=a@secret", "redis://…@"), ("redis://:sec?ret@h:x", "redis://…@"),
     ("redis://:a@h?password=secret", "redis://…@h?…"), ("redis://:a#secret@h", "redis://…@"), ("redis://h#secret", "redis://h#…")],
)  # fmt: skip
def test_the_password_of_a_refused_redis_is_not_shown(given: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_ROOMS", given)
    with pytest.raises(ValueError, match=r"^UNMASK_ROOMS: ") as refused:
        Settings.from_environment()
    assert str(refused.value).endswith(f"got '{shown}'")


@pytest.mark.parametrize("given", ["*; script-src *", "a\nSet-Cookie: b", "a, b", "https://例え.jp", "https://ü.de"])
def test_a_setting_cannot_end_or_break_the_header_it_stands_in(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_FRAME_ANCESTORS", given)
    with pytest.raises(ValueError, match="UNMASK_FRAME_ANCESTORS"):
        Settings.from_environment()


SERVE = ["-m", "streamlit", "run", "serve.py", "--server.headless", "true", "--server.port"]
NO_RAY = "UNMASK_RAY: Ray is not installed here: pip install -r requirements-ray.txt"


@pytest.mark.parametrize(
    ("start", "variable", "given", "words"),
    [
        ([*SERVE, str(free_port())], "UNMASK_WORKERS", "x", "UNMASK_WORKERS: expected a valid integer, got 'x'"),
        (["-m", "unmask"], "UNMASK_WORKERS", "x", "UNMASK_WORKERS: expected a valid integer, got 'x'"),
        (
            ["-c", f"from streamlit.testing.v1 import AppTest; AppTest.from_file('{ROOT}/app.py').run()"],
            "UNMASK_WORKERS", "x", "UNMASK_WORKERS: expected a valid integer, got 'x'",
        ),
        ([*SERVE, str(free_port())], "UNMASK_RAY", "auto", NO_RAY),
        ([*SERVE, str(free_port())], "UNMASK_LESSONS", "none", "UNMASK_LESSONS: expected a folder, got 'none'"),
        ([*SERVE, str(free_port())], "UNMASK_MODEL_ROOT", "none", "UNMASK_MODEL_ROOT: expected a folder, got 'none'"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_ends_it_with_a_sentence(
    start: list[str], variable: str, given: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError")  # as if Ray were not installed
    environment = os.environ | {variable: given, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    ran = subprocess.run(
        [sys.executable, *start], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == words
    assert "Traceback" not in ran.stderr


def test_a_port_of_metrics_in_use_ends_it_with_a_sentence_after_a_model_that_is_not_here() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environment = os.environ | {"UNMASK_METRICS_PORT": str(port), "UNMASK_MODELS": "story,dattes"}
        start = [sys.executable, "-m", "streamlit", "run", "serve.py", "--server.headless", "true"]
        ran = subprocess.run(
            [*start, "--server.port", str(free_port())],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-2:] == [
        "UNMASK_MODELS: dattes is neither built in nor on this machine",
        f"UNMASK_METRICS_PORT: 127.0.0.1:{port} cannot be used (Address already in use)",
    ]


def test_a_redis_that_does_not_answer_is_told_in_the_log(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    with running("serve.py", log, UNMASK_ROOMS=f"redis://me:{TOKEN}@127.0.0.1:{port}"):
        ends = time.monotonic() + READY_SECONDS
        while "UNMASK_ROOMS" not in log.read_text() and time.monotonic() < ends:
            time.sleep(0.1)
    (logged,) = (line for line in log.read_text().splitlines() if "UNMASK_ROOMS" in line)
    begins = f"UNMASK_ROOMS: the Redis at 127.0.0.1:{port} cannot be used (ConnectionError); class sessions fail"
    assert logged == f"{begins} until it can: start it, or correct the address"
    assert TOKEN not in log.read_text()


def test_all_sources_of_csp_may_frame_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = "'self' https://*.xn--r8jz45g.jp:8443/a-b/c_d~e?f=g&h=%20 wss: [::1] blob:"
    monkeypatch.setenv("UNMASK_FRAME_ANCESTORS", sources)
    assert Settings.from_environment().frame_ancestors == sources


def test_by_default_only_its_own_pages_may_frame_it_and_no_port_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})
    settings = Settings.from_environment()
    assert (settings.frame_ancestors, settings.metrics_port) == ("'self'", 0)
    assert settings.metrics_address == "127.0.0.1"


@pytest.mark.parametrize(("given", "shared"), [("", True), (" ", True), ("false", False)])
def test_readers_of_serve_are_others_unless_a_setting_says_no(given: str, shared: bool) -> None:
    code = "import serve; from serving.settings import Settings; print(Settings.from_environment().shared)"
    environment = os.environ | {"UNMASK_SHARED": given}
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.stdout == f"{shared}\n", ran.stderr
