"""The process of one long job (background.py): receives the job, then PAUSE and RESUME, until the job or the connection
ends. It imports little, to start fast: the job's function imports torch.
"""

import os
import pickle
import sys
from multiprocessing.connection import Connection
from threading import Event, Thread
from typing import Any

from model.errors import panics_caught, sendable

NICENESS = 10  # a tenth of a page's share of a busy core; at higher values, trainings on a busy server never end


class JobReporter:
    """The `report` argument of a long job: sends data to the server, and blocks while the job is paused."""

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
            os._exit(0)  # the server has ended

    def _listen(self) -> None:
        try:
            while True:
                if self._connection.recv_bytes() == b"pause":
                    self._going.clear()
                else:
                    self._going.set()
        except (EOFError, OSError):
            os._exit(0)  # the server has ended


def main(descriptor: int) -> None:
    """Run one job with low priority. descriptor: the file descriptor of the connection to the server."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    connection = Connection(descriptor)
    function, arguments, options = pickle.loads(connection.recv_bytes())  # noqa: S301 - of our server
    report = JobReporter(connection)
    try:
        with panics_caught():
            report.send("answer", function(report, *arguments, **options))
    except Exception as error:  # noqa: BLE001 - sent to the user
        report.send("error", sendable(error, function.__qualname__))


if __name__ == "__main__":
    main(int(sys.argv[1]))
