"""A JupyterLab server on 127.0.0.1 that keeps all its files in the test's own folder."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import nbformat
from nbformat.sign import NotebookNotary

from tests.browser.running import ROOT, START_SECONDS, free_port

TOKEN = "only-for-this-test"


@contextmanager
def jupyterlab(folder: Path, notebook: nbformat.NotebookNode) -> Iterator[tuple[str, str]]:
    """Run JupyterLab; yield its address and the notebook's, trusted as one executed here; kill it at the end."""
    port = free_port()
    work, own = folder / "work", folder / "own"
    for path in (work, own):
        path.mkdir()
    nbformat.write(notebook, work / "example.ipynb")
    NotebookNotary(data_dir=str(own)).sign(nbformat.read(work / "example.ipynb", as_version=4))
    folders = dict.fromkeys(("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"), str(own))
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
        f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={work}", "--ServerApp.port_retries=0",
        f"--LabApp.user_settings_dir={own}", f"--LabApp.workspaces_dir={own}", "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=work, env=os.environ | folders | {"PYTHONPATH": paths}, stdout=output, stderr=subprocess.STDOUT
        )
        address = f"http://127.0.0.1:{port}"
        try:
            _wait(f"{address}/api?token={TOKEN}", process, log)
            yield address, f"{address}/lab/tree/example.ipynb?reset&token={TOKEN}"
        finally:
            process.kill()  # terminate() would wait for the kernel, which ends by itself without a server
            process.wait()


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"no JupyterLab within {START_SECONDS} seconds:\n{log.read_text(errors='replace')[-3000:]}")
