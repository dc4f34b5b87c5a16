"""What is made once and lives as long as the process.

Not st.cache_resource: whoever has a websocket may send `clear_cache`, and Streamlit then empties its caches for
everybody.
"""

from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import TypeVar

Made = TypeVar("Made")


def once(make: Callable[[], Made]) -> Callable[[], Made]:
    """make(), called at most once, by one thread while others wait for it; called again if it raised."""
    lock, made = Lock(), cache(make)

    @wraps(make)
    def get() -> Made:
        with lock:
            return made()

    return get
