"""A page that asks for what lasts until a file called over lies beside its mark, unless its link says not to."""

import streamlit as st

from tests.serving import jobs
from ui import results

if st.query_params.get("text") == "quick":
    st.write(f"waiting: {results.scheduler().waiting()}")
else:
    results.ask(jobs.hold, st.query_params["text"])
