"""Tests of the wheel: installed beside a user's files, it adds the name `unmask` only and behaves as the checkout.

It is built from this checkout and unpacked into an empty folder; the user's folder has files with the names of the
project's folders.
"""

import os
import socket
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mask_check.findings import VERDICTS

pytestmark = pytest.mark.slow  # builds and installs a wheel

ROOT = Path(__file__).parents[1]
SHADOWS = ("model.py", "viz.py", "ui.py", "pages.py", "app.py")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("unmask-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def run(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs Python in a user's folder whose files, named as ours, must not be imported."""
    for name in SHADOWS:
        (tmp_path / name).write_text("raise AssertionError('a file of the reader was imported')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(installed))

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    return python


def test_the_wheel_names_and_holds_the_license_and_the_terms_of_the_weights(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {
            name: archive.read(name).decode()
            for name in archive.namelist()
            if name.endswith(("METADATA", ".md", "LICENSE"))
        }
    metadata = next(text for name, text in held.items() if name.endswith("METADATA"))
    assert "License-Expression: MIT" in metadata
    license_ = next(text for name, text in held.items() if name.endswith("/licenses/LICENSE"))
    assert license_ == (ROOT / "LICENSE").read_text()
    cards = [text for name, text in held.items() if "/checkpoints/" in name]
    assert len(cards) == 6
    assert all("| terms | weights: MIT license" in card for card in cards)


def test_nothing_but_unmask_appears_in_site_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"unmask"}


def test_the_wheel_holds_every_file_of_the_rooms(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    files = [
        file.relative_to(ROOT).as_posix()
        for room in ("model", "mask_check", "lessons", "serving", "viz", "ui", "pages")
        for file in (ROOT / room).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    assert len(files) > 100
    assert not [
        file for file in (*files, "app.py", ".streamlit/config.toml", "py.typed") if f"unmask/{file}" not in held
    ]


def test_the_app_opens_and_every_module_has_one_name(run: Run) -> None:
    code = """
import sys
from pathlib import Path
import unmask
from streamlit.testing.v1 import AppTest
sys.path.pop(0)  # `streamlit run` puts the app's folder there, not the reader's
app = AppTest.from_file(str(Path(unmask.__file__).parent / "app.py"), default_timeout=120).run()
for page in ("pages/mask_lab.py", None):
    assert not app.exception, app.exception
    assert not app.error, app.error
    if page:
        app.switch_page(page).run()
ROOMS = ("model", "mask_check", "lessons", "serving", "viz", "ui", "i18n")
ours = Path(unmask.__file__).parent  # its modules; the pages themselves are run as scripts
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
modules = [file for file in files if any(file.startswith(str(ours / room)) for room in ROOMS)]
assert len(modules) > 40
assert len(modules) == len(set(modules)), "a module under two names"
print(sorted(name for name in sys.modules if name.split(".")[0] in ROOMS))
"""
    found = run("-c", code)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"


def test_unmask_alone_serves_the_app(installed: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    environment |= {"STREAMLIT_SERVER_PORT": str(port), "STREAMLIT_SERVER_HEADLESS": "true"}
    server = subprocess.Popen([sys.executable, "-m", "unmask"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    try:
        output = ""
        while str(port) not in output:  # its address, printed once it is served
            line = server.stdout.readline().decode()  # type: ignore[union-attr]
            assert line, f"it ended: {output}"
            output += line
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=60) as answer:
            assert answer.read() == b"ok"
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_the_commands_work_from_a_folder_of_the_readers(run: Run) -> None:
    """All commands run in one process, since each process would import torch again."""
    code = """
import unmask
from unmask.__main__ import main
assert all(getattr(unmask, name) for name in unmask.__all__)
assert main(["check", "story", "--length", "11"]) == 0
assert main(["report", "--text", "Once upon a time", "--masks", "causal", "-o", "one.html"]) == 0
main(["train", "--help"])
"""
    found = run("-c", code)
    assert found.returncode == 0, found.stderr
    _, obeys, rest = found.stdout.partition(VERDICTS[0].format(lengths="11, 130 and 247"))
    assert obeys
    assert "one.html: story, 5 tokens, causal mask" in rest
    assert "usage: " in rest.partition("one.html")[2]


def test_a_training_and_a_worker_are_processes_of_the_package(run: Run) -> None:
    code = """
import time
from unmask.model.text import rows_of
from unmask.serving import backends
from unmask.serving.job import Job
from unmask.serving.result_cache import Engine
from unmask.serving.settings import Settings
from unmask.serving.training_job import Training
training = Training("a b c d " * 40, causal=True, steps=1)
while not training.watch().over:
    time.sleep(0.1)
assert training.watch().state == "done", training.watch()
scheduler = backends.start(Settings(workers=1), Engine(1, 0))
print(scheduler.ask(Job(rows_of, ("one\\n\\ntwo", 5))))
scheduler.close()
"""
    found = run("-c", code)
    assert found.stdout.strip() == "(['one', 'two'], 0)", found.stderr


def test_a_statement_that_would_bind_another_name_is_refused() -> None:
    sys.path.insert(0, str(ROOT))
    import hatch_build

    assert hatch_build.renamed("def f():\n    from model.text import x\nfrom modelling import y\n") == (
        "def f():\n    from unmask.model.text import x\nfrom modelling import y\n"
    )
    with pytest.raises(ValueError, match=r"got `import model.text`"):
        hatch_build.renamed("import model.text\n")


def test_what_is_required_is_what_requirements_txt_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
    lines = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    required = {line.split(":")[1].strip() for line in lines}
    pinned = [line.split("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    pinned = [line for line in pinned if line]
    assert len(required) == len(pinned)
    assert "torch<3,>=2.13.0" in required
