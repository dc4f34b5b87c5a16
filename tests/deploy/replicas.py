"""Check of deploy/nginx.conf in front of two servers, run as processes instead of containers. Needs nginx.

    python -m tests.deploy.replicas

Users connect through the proxy, each with a separate cookie; then one server is killed and all users reconnect.
"""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.request import urlopen

import psutil
from websockets.asyncio.client import connect

from tests.benchmarks.reader import PATIENCE, Reader, Switch
from tests.browser.running import ROOT, free_port, running
from ui.streamlit_internals.selectors import script_files

READERS, FRAMED, SLOW, TEXT = 8, 500, 100, "marked words"
SWITCH = Switch("", "causal")


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # nginx writes its files as another user if this one is root
        secret = {"STREAMLIT_SERVER_COOKIE_SECRET": os.urandom(16).hex()}
        servers = [stack.enter_context(running("serve.py", folder / f"server {n}", **secret)) for n in (1, 2)]
        log = folder / "log"
        address = stack.enter_context(proxied(servers, log))
        cookies = [cookie_of(address) for _ in range(READERS)]
        asyncio.run(visit(address, cookies))
        first = replicas_in(log)
        asyncio.run(visit(address, cookies))
        again = replicas_in(log)
        assert len(first) == 2, f"expected readers at both servers, got {first}"
        assert all(again[server] == 2 * first[server] for server in first), f"expected the same again, got {again}"
        print(f"{READERS} users, each twice on the same server: {sorted(first.values())}")
        end(servers[0])
        began = time.monotonic()
        asyncio.run(visit(address, cookies))
        print(f"with one server stopped, all {READERS} reconnected within {time.monotonic() - began:.1f} s")
        assert "marked" not in log.read_text(), "the proxy's log has a text in it"
        assert "frame-ancestors 'self'" in urlopen(address).headers["Content-Security-Policy"]
        print("no text in the proxy's log; the servers' headers arrive")
        held = hold(address, SLOW, f"/{script_files()[0]} HTTP/1.1\r\nHost: proxy\r\n\r\n")
        time.sleep(3)
        assert not buffered(), f"the proxy has {buffered() / 1e6:.0f} MB of responses in files"
        print(f"{len(held)} users who do not read a script take no files of the proxy")
        held = hold(address, FRAMED, "/ HTTP/1.1\r\nHost: proxy\r\nX: ")  # requests of which a part was sent
        asyncio.run(come_alike(address, FRAMED))
        print(f"{FRAMED} users in frames of another site, alike and without a cookie, are all served")


@contextmanager
def proxied(servers: list[str], log: Path) -> Iterator[str]:
    """Run nginx on a free port with the configuration that ships, except for the addresses in it."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        raise SystemExit("expected nginx on this machine: apt-get install nginx-light")
    text = (ROOT / "deploy" / "nginx.conf").read_text().replace("/tmp/", f"{log.parent}/")
    port = free_port()
    for number, server in enumerate(servers, 1):
        text = text.replace(f"replica-{number}:8501", server.removeprefix("http://"))
    text = text.replace("listen 8080", f"listen 127.0.0.1:{port}").replace("/dev/stdout", str(log))
    configuration = log.with_name("nginx.conf")
    configuration.write_text(text)
    process = subprocess.Popen([nginx, "-c", str(configuration), "-g", "daemon off;"])
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def cookie_of(address: str) -> str:
    """Return the cookie that the proxy sets for a browser on its first visit."""
    with closing(urlopen(f"{address}/?text=marked")) as answer:
        cookies = SimpleCookie(answer.headers["Set-Cookie"])
    return f"unmask_replica={cookies['unmask_replica'].value}"


async def visit(address: str, cookies: list[str]) -> None:
    """Open the page and toggle a mask with each of the cookies in turn."""
    for cookie in cookies:
        async with connect(
            f"{address.replace('http', 'ws')}/_stcore/stream", subprotocols=["streamlit"], origin=address,
            max_size=None, open_timeout=PATIENCE, additional_headers={"Cookie": cookie},
        ) as line:  # fmt: skip
            reader = Reader(line, SWITCH, TEXT)
            await reader.open()
            await reader.flip()


async def come_alike(address: str, users: int) -> None:
    """Hold one connection without a cookie open for each of `users` users, all at the same time."""
    url = f"{address.replace('http', 'ws')}/_stcore/stream"
    async with AsyncExitStack() as lines:
        for _ in range(users):
            line = connect(url, subprotocols=["streamlit"], origin=address, open_timeout=PATIENCE)
            await lines.enter_async_context(line)


def hold(address: str, count: int, request: str) -> list[socket.socket]:
    """Return this many new connections that have sent a request, or a part of one, and read nothing."""
    port, held = int(address.rpartition(":")[2]), []
    for _ in range(count):
        line = socket.create_connection(("127.0.0.1", port))
        line.sendall(f"GET {request}".encode())
        held.append(line)
    return held


def buffered() -> int:
    """Return how many bytes of responses nginx has in files, which it deletes while they are open."""
    workers = [one.pid for one in psutil.Process().children(recursive=True) if one.name() == "nginx"]
    files = [file for worker in workers for file in Path(f"/proc/{worker}/fd").iterdir()]
    return sum(file.stat().st_size for file in files if "/proxy/" in str(file.readlink()))


def replicas_in(log: Path) -> Counter:
    """Count the websockets of each server after the proxy has logged the last one."""
    time.sleep(0.5)
    return Counter(re.findall(r"/_stcore/stream 101 .* (\S+)$", log.read_text(), re.MULTILINE))


def end(server: str) -> None:
    """Kill a server as by kill -9. It is a child of this process."""
    port = server.rpartition(":")[2]
    next(child for child in psutil.Process().children() if port in child.cmdline()).kill()


if __name__ == "__main__":
    main()
