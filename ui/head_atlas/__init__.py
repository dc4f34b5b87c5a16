"""What the page Head atlas needs of streamlit."""
