"""Pictures: numpy in, plotly Figure, PNG bytes or HTML text out. Imports neither torch nor streamlit."""
