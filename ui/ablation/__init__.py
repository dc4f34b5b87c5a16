"""What the page Heads off needs of streamlit."""
