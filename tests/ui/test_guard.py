"""What fails becomes one sentence; what is ours to mend is raised."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache

import pytest
import streamlit as st
import torch
from streamlit.testing.v1 import AppTest

from i18n import msg, say, spoken
from serving.job import Job
from serving.result_cache import ResultCache
from ui import results
from ui.guard import NO_MEMORY, guarded, message_for, waiting


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("expected 3, got 4."), "expected 3, got 4"),
        (OSError("no network"), "no network"),
        (MemoryError(), NO_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory"), NO_MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), NO_MEMORY),
        (RuntimeError("unable to mmap 1400 bytes from file <model>: Cannot allocate memory (12)"), NO_MEMORY),
    ],
)
def test_the_sentence_of_an_error(error: Exception, words: str) -> None:
    assert message_for(error) == words


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), KeyError("x")])
def test_an_error_of_ours_has_no_sentence(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        message_for(error)
    assert caught.value is error


def test_why_another_reader_s_work_failed_is_in_this_reader_s_language() -> None:
    error = ValueError(msg("a check needs a text of at least two tokens: type one more word"))
    assert message_for(error) == str(error) == "a check needs a text of at least two tokens: type one more word"
    with spoken("zh"):
        assert say(message_for(error)) == say(str(error)) != str(error)


def test_torchs_own_lack_of_memory_is_one() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**46, dtype=torch.float64)
    assert message_for(caught.value) == NO_MEMORY


def test_the_page_says_it_and_ends_there() -> None:
    def page() -> None:
        import streamlit as st

        from ui.guard import guarded

        st.write("before")
        with guarded("Working …", on_trouble=lambda: st.write("halted")):
            raise ValueError("expected *three*, got 4")
        st.write("after")

    app = AppTest.from_function(page).run()
    assert not app.exception
    assert [one.value for one in app.markdown] == ["before", "halted"]
    assert app.error[0].value == r"expected \*three\*, got 4."


@pytest.mark.parametrize(("looks", "spinners"), [(1, []), (2, ["Running …"]), (9, ["Running …"])])
def test_only_what_takes_time_has_a_spinner(looks: int, spinners: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        def ask(self, job: Job, reader: str, look: Callable[[], None]) -> str:
            for _ in range(looks):
                look()
            return "made"

    shown: list[str] = []
    monkeypatch.setattr(st, "spinner", lambda words, **_: shown.append(words) or nullcontext())
    monkeypatch.setattr(results, "scheduler", Asked)
    monkeypatch.setattr(results, "result_cache", cache(lambda: ResultCache(1000)))
    with guarded("Running …"):
        assert [results.ask(len, "") for _ in range(2)] == ["made"] * 2
    assert shown == spinners, "and none for what is known"


def test_the_guards_own_words_spin_once_however_deep_the_waiting_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(st, "spinner", lambda words, **_: shown.append(words) or nullcontext())
    with guarded("Running …"):
        with guarded(), waiting():
            assert shown == []  # the inner guard has no words
        with waiting(), waiting():
            assert shown == ["Running …"]
        with waiting():
            assert shown == ["Running …"] * 2
    with waiting():
        assert len(shown) == 2
