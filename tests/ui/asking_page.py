"""A page that waits for a job until a file "over" exists beside the job's mark, unless its link has text=quick."""

import streamlit as st

from tests.serving import jobs
from ui import results

if st.query_params.get("text") == "quick":
    st.write(f"waiting: {results.scheduler().waiting()}")
else:
    results.ask(jobs.hold, st.query_params["text"])
