"""A real redis-server on a free port of this machine that writes nothing to disk."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redis import ConnectionError as NotThere
from redis import Redis

from tests.browser.running import free_port

FOUND = shutil.which("redis-server")
MISSING = "no redis-server here: apt-get install redis-server"


@contextmanager
def redis_server() -> Iterator[str]:
    """Run the server and yield its address, redis://…."""
    assert FOUND, MISSING
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([FOUND, *options], stdout=subprocess.DEVNULL)
    try:
        with Redis(port=port) as redis:
            for _ in range(200):
                try:
                    redis.ping()
                    break
                except NotThere:
                    time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
