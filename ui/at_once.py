"""Every message to the browser leaves at once.

Streamlit opens its server's socket without saying that it is TCP's, so that asyncio leaves Nagle's algorithm on:
after a rerun's first small message the others wait until the browser has acknowledged it, which takes it 40 ms, or a
network's way there and back.
"""

import os
import socket
from functools import cache

import psutil


@cache
def no_delay() -> None:
    """Switch it off, once: where this process listens, so for all that it will accept, and for what it has accepted."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.fd >= 0 and connection.status in (psutil.CONN_LISTEN, psutil.CONN_ESTABLISHED):
            with socket.socket(fileno=os.dup(connection.fd)) as ours:
                ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
