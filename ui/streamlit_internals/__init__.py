"""All uses of parts of Streamlit that are not in its documented interface. No other folder may use such a part.

Each is checked by a test of tests/ui (test_streamlit_internals, test_cached_messages, test_session_lock or
test_limits_of_a_session), and the selectors by tests/browser/test_internals.py; `make upgrade-check` runs them with the
newest Streamlit. Checked with Streamlit 1.67.0.
"""
