"""The state of a session of which two runs overlap, as after a quick second click."""

from concurrent.futures import ThreadPoolExecutor, wait

from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.runtime.state.session_state import SessionState

from tests.ui.test_streamlit_internals import broken
from ui.streamlit_internals import messages


def test_one_run_uses_the_state_at_a_time_and_other_sessions_do_not_wait() -> None:
    messages.lock_session_state()
    state = SessionState()
    old, new, other = (SafeSessionState(one, lambda: None) for one in (state, state, SessionState()))
    with ThreadPoolExecutor() as threads:
        with old.query_params():  # which holds the lock
            waiting = threads.submit(lambda: new.filtered_state)
            assert threads.submit(lambda: other.filtered_state).result(10) == {}
            assert not wait([waiting], 0.3).done, broken("SafeSessionState.__init__ and SafeSessionState._lock")
        assert waiting.result(10) == {}
    old["kept"] = 1
    assert old["kept"] == new["kept"] == 1, "a run may use it within its own callback"
