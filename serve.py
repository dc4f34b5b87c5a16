"""Unmask as a server, `streamlit run serve.py`: the app of app.py with headers for browsers, a log without texts, a
scheduler that starts before the first user connects, and UNMASK_METRICS_PORT. Its users are other people,
UNMASK_SHARED."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from threading import Thread, Timer

import streamlit as st
from starlette.middleware import Middleware

from model import catalog
from serving import health, logs, machine
from serving.headers import Headers
from serving.room_routes import routes, stopping
from serving.rooms import report_problem, rooms
from serving.scheduler import Scheduler
from serving.settings import Settings
from ui import results
from viz.lessons.phone import language_of, phone_page

os.environ["UNMASK_SHARED"] = os.environ.get("UNMASK_SHARED", "").strip() or "true"  # empty counts as not set
settings = Settings.of_server()
STOP_SECONDS = 5.0  # for open requests; `docker stop` waits for ten
CLOSE_SECONDS = 2.0  # for the workers to end


def end_now(scheduler: Scheduler) -> None:
    """End the process and its workers. uvicorn itself waits for all clients, also those that send or read nothing."""
    closing = Thread(target=scheduler.close, daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    os._exit(0)


@asynccontextmanager
async def started(_: st.App) -> AsyncIterator[None]:
    """Run what all users share, from before the first user connects until after the last."""
    logs.redact()
    machine.allow_many_files()
    for name in settings.models:
        if not catalog.is_on_disk(name):
            print(f"UNMASK_MODELS: {name} is neither built in nor on this machine", file=sys.stderr, flush=True)
    Thread(target=report_problem, daemon=True).start()  # it may take seconds, and no user waits for it
    health.expect_free_port(settings)
    try:
        scheduler, engine, answers = results.scheduler(), results.engine(), results.result_cache()
    except ValueError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(2)

    def stop() -> None:
        stopping.set()
        end = Timer(STOP_SECONDS, end_now, (scheduler,))
        end.daemon = True
        end.start()

    machine.on_termination(stop)
    loop = asyncio.get_running_loop()
    try:
        with health.served(settings, loop, scheduler, engine, answers) if settings.metrics_port else nullcontext():
            yield
    finally:
        scheduler.close()


app = st.App(
    "app.py",
    lifespan=started,
    routes=routes(rooms(), lambda accepted: phone_page(language_of(accepted)), st.get_option("server.baseUrlPath")),
    middleware=[Middleware(Headers, frame_ancestors=settings.frame_ancestors)],
)
