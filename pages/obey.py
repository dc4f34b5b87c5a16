"""The old address of Mask check, so that its links continue to work."""

import streamlit as st

st.switch_page("pages/mask_check.py", query_params=st.query_params.to_dict())
