"""Masks, attention, models and the traces of their runs. Imports neither streamlit nor plotly."""
