"""What several pages share of streamlit: set-up, URL state, cached models and runs."""
