"""One long job in a process of its own: of what the pages need it takes a share of a core, no lock.

background.py starts it with a connection, sends the job, then PAUSE and GO_ON. It ends with its job, or with its
connection. Imports nothing that takes long: the job's function does, once its process is known to have begun.
"""

import os
import pickle
import sys
from multiprocessing.connection import Connection
from threading import Event, Thread
from typing import Any

from i18n import spoken
from model.errors import panics_caught

NICENESS = 10  # a tenth of what a page gets where both want a core; more, and a busy server never ends a training


class JobReporter:
    """What a long job tells through, and where it stands still while it is paused."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._going = connection, Event()
        self._going.set()
        Thread(target=self._listen, daemon=True).start()

    def __call__(self, what: Any) -> None:
        self.send("report", what)
        self._going.wait()

    def send(self, kind: str, what: Any) -> None:
        try:
            self._connection.send_bytes(pickle.dumps((kind, what), pickle.HIGHEST_PROTOCOL))
        except OSError:
            os._exit(0)  # the server is gone

    def _listen(self) -> None:
        try:
            while True:
                if self._connection.recv_bytes() == b"pause":
                    self._going.clear()
                else:
                    self._going.set()
        except (EOFError, OSError):
            os._exit(0)  # the server is gone, and with it whoever watched


def main(descriptor: int) -> None:
    """Do the job in one thread, behind everybody else who wants the core."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    connection = Connection(descriptor)
    asked = pickle.loads(connection.recv_bytes())  # noqa: S301 - of the server that started it
    language, function, arguments, options = asked
    report = JobReporter(connection)
    try:
        with spoken(language), panics_caught():
            report.send("answer", function(report, *arguments, **options))
    except Exception as error:  # noqa: BLE001 - it is the reader's
        report.send("error", error)


if __name__ == "__main__":
    main(int(sys.argv[1]))
