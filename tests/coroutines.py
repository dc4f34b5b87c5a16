"""Coroutines in tests that are none."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def finished(coroutine: Coroutine[object, object, Result]) -> Result:
    """What it comes to, in a thread of its own: in the tests' own a browser may keep an event loop running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
