"""Debian's firefox-esr, headless, driven by WebDriver BiDi: playwright supports only its own build of Firefox."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

FOUND = shutil.which("firefox-esr") or shutil.which("firefox")
LISTENS = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
PATIENCE = 60.0  # seconds


class Tab:
    """A browser tab. errors: the error messages of the console and of exceptions."""

    def __init__(self, socket: ClientConnection) -> None:
        self.errors: list[str] = []
        self._socket, self._number = socket, 0
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        self._context = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    def open(self, address: str) -> None:
        self._ask("browsingContext.navigate", context=self._context, url=address, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """Return the expression's value, sent as JSON; a promise is awaited. Raises AssertionError for an exception."""
        code = f"(async () => JSON.stringify(await ({expression})))()"
        where = {"target": {"context": self._context}, "awaitPromise": True}
        found = self._ask("script.evaluate", expression=code, **where)
        assert found["type"] == "success", found
        return json.loads(found["result"].get("value", "null"))

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(PATIENCE))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.errors.append(message["params"]["text"])
            if message.get("id") == self._number:
                assert message["type"] == "success", message
                found: dict[str, Any] = message["result"]
                return found


@contextmanager
def firefox(folder: Path) -> Iterator[Tab]:
    """Run Firefox with its profile in `folder` and yield its tab. Requires FOUND."""
    options = ["--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port", "0"]
    command = [str(FOUND), *options, "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr is not None
            found = next(filter(None, map(LISTENS.search, process.stderr)))
            with connect(f"{found[1]}/session", max_size=None) as socket:
                yield Tab(socket)
        finally:
            process.terminate()
