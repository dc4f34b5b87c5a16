"""References to messages that the browser has cached: the server makes one only if it cannot fail there.

tests/browser/test_slow_line.py shows what a user saw otherwise: a page that no longer answers.
"""

import random
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.app_session import AppSession

from tests.ui.test_streamlit_internals import broken
from ui.streamlit_internals import messages

TOO_LARGE = "d"  # a message that the browser does not receive: Streamlit sends an error instead


class Browser:
    """Streamlit's frontend as far as it caches messages (ForwardMessageCache in its JavaScript), and a slow connection
    to the session's queue of messages."""

    def __init__(self) -> None:
        self.queue: list[ForwardMsg] = []
        self.on_the_way: list[ForwardMsg] = []
        self.used: dict[str, int] = {}
        self.finished = self.references = 0

    def ask(self) -> None:
        """Ask for a run, naming what is cached."""
        AppSession.request_rerun(self, ClientState(cached_message_hashes=list(self.used)))  # type: ignore[arg-type]

    def flush(self) -> None:
        self.on_the_way += AppSession.flush_browser_queue(self)  # type: ignore[arg-type]

    def receive(self, number: int) -> None:
        for message in self.on_the_way[:number]:
            kind = message.WhichOneof("type")
            if kind == "ref_hash":
                assert message.ref_hash in self.used, "Cached ForwardMsg MISS"
                self.references += 1
            if message.hash != TOO_LARGE and (kind == "ref_hash" or message.metadata.cacheable):
                self.used[message.ref_hash or message.hash] = self.finished
            if kind == "script_finished":
                self.finished += 1
                self.used = {name: last for name, last in self.used.items() if self.finished - last <= 2}
        del self.on_the_way[:number]

    def reconnect(self) -> None:
        """Lose what is on the way, and go on with the same session."""
        self.on_the_way.clear()
        AppSession.clear_session_caches(self)  # type: ignore[arg-type]


def run(*elements: str) -> list[ForwardMsg]:
    """Return the messages of a run that draws these, each of which is large enough for the cache."""
    drawn = []
    for name in elements:
        message = ForwardMsg(hash=name)
        message.delta.new_element.markdown.body = name
        message.metadata.cacheable = True
        drawn.append(message)
    return [*drawn, ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[ClientState]:
    requests: list[ClientState] = []

    def flush(session: Any) -> list[ForwardMsg]:
        waiting, session.queue = session.queue, []
        return waiting

    monkeypatch.setattr(AppSession, "request_rerun", lambda _, state: requests.append(state))
    monkeypatch.setattr(AppSession, "flush_browser_queue", flush)
    monkeypatch.setattr(AppSession, "clear_session_caches", lambda _: None)
    messages.send_what_the_browser_lacks.__wrapped__()
    return requests


def test_a_message_is_referred_to_until_the_browser_may_have_removed_it(taken: list[ClientState]) -> None:
    browser = Browser()
    kinds = []
    for elements in ("a", "a", "", "a", "", "", "a"):
        browser.ask()
        browser.queue += run(*elements)
        browser.flush()
        kinds += [one.WhichOneof("type") for one in browser.on_the_way if not one.HasField("script_finished")]
        browser.receive(99)
    assert kinds == ["delta", "ref_hash", "ref_hash", "delta"]
    assert not any(state.cached_message_hashes for state in taken), "the run itself would refer to what may be removed"


def test_what_earlier_answers_remove_on_their_way_is_sent_whole(taken: list[ClientState]) -> None:
    browser = Browser()
    for elements in ("a", "b", "c"):
        browser.ask()
        browser.queue += run(*elements)
        browser.flush()
        browser.receive(2 if elements != "c" else 0)
    browser.ask()  # it has "a", until it hears that the run of "c" has finished
    browser.queue += run("a")
    browser.flush()
    browser.receive(99)
    assert browser.references == 0


@pytest.mark.parametrize("seed", range(20))
def test_no_reference_fails_over_a_connection_of_any_speed(seed: int, taken: list[ClientState]) -> None:
    draw, browser = random.Random(seed), Browser()
    for _ in range(900):
        action = draw.choice(["ask", "run", "flush", "receive", "receive", "clear", "reconnect"])
        if action == "run":
            browser.queue += run(*draw.sample("abcd", draw.randrange(4)))
        elif action == "receive":
            browser.receive(draw.randrange(9))
        elif action == "clear":  # as when a run is interrupted before it was sent
            browser.queue = [one for one in browser.queue if one.HasField("script_finished")]
        elif action == "reconnect" and draw.random() < 0.1:
            browser.reconnect()
            browser.ask()
        elif action != "reconnect":
            getattr(browser, action)()
    assert browser.references, "not even there"


def test_the_parts_of_streamlit_that_decide_it_are_there() -> None:
    assert st.get_option("global.maxCachedMessageAge") == 2, broken("the hidden option global.maxCachedMessageAge")
    scripts = Path(st.__file__).parent / "static" / "static" / "js"
    found = [one for one in scripts.glob("index.*.js") if "Cached ForwardMsg MISS" in one.read_text(encoding="utf-8")]
    assert len(found) == 1, broken("ForwardMessageCache in static/js/index.<hash>.js")
