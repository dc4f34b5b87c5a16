"""What the page A and B needs of streamlit."""
