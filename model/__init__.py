"""The mathematics: masks, attention, models and what a run leaves behind. Imports neither streamlit nor plotly."""
