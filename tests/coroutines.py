"""A helper to run coroutines in tests that are not coroutines themselves."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def finished(coroutine: Coroutine[object, object, Result]) -> Result:
    """Return a coroutine's result, run in a new thread: in the tests' thread a browser may keep a loop running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
