"""A server's own state, on a port that readers do not see: /live, /ready, and /metrics for Prometheus."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import disable_created_metrics, make_wsgi_app

from serving import readiness
from serving.engine import Engine
from serving.metrics import Observed
from serving.result_cache import ResultCache
from serving.scheduler import Scheduler
from serving.settings import Settings

PATIENCE = 5.0  # seconds in which a server that is well answers

Check = Callable[[], str]  # what is wrong, in a sentence; "" for nothing


@contextmanager
def told(
    settings: Settings, loop: asyncio.AbstractEventLoop, scheduler: Scheduler, engine: Engine, answers: ResultCache
) -> Iterator[int]:
    """Answer at the settings' address and port (0: any) while inside; yields the port. loop: the app server's."""
    disable_created_metrics()  # a second series for each, of when it began
    observed = Observed(scheduler, {"answers": answers, "traces": engine.traces})
    checks: dict[str, Check] = {
        "/live": lambda: _stuck(loop),
        "/ready": lambda: readiness.trouble(engine, scheduler, settings, PATIENCE),
    }
    app = answering(checks, make_wsgi_app(observed.registry))
    with make_server(settings.metrics_address, settings.metrics_port, app, _Server, _QuietHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def answering(checks: dict[str, Check], metrics: WSGIApplication) -> WSGIApplication:
    """200 for a check that finds nothing wrong, 503 with what it finds, 404 for any other path."""

    def app(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment["PATH_INFO"]
        if path == "/metrics":
            return metrics(environment, start)
        if path not in checks:
            status, words = "404 Not Found", f"There are {', '.join(checks)} and /metrics"
        else:
            wrong = checks[path]()
            status, words = ("503 Service Unavailable", wrong) if wrong else ("200 OK", "ok")
        start(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{words}\n".encode()]

    return app


def _stuck(loop: asyncio.AbstractEventLoop) -> str:
    """A server whose loop turns answers its users; one whose loop stands still has to be started anew."""
    turn = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
    try:
        turn.result(PATIENCE)
    except TimeoutError:
        turn.cancel()
        return f"the server's loop has not turned within {PATIENCE:g} seconds"
    return ""


class _Server(ThreadingMixIn, WSGIServer):
    """A check that waits does not keep another from being answered."""

    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    timeout = PATIENCE  # of a client that sends nothing

    def log_message(self, format: str, *arguments: object) -> None:
        """A line every few seconds says nothing."""
