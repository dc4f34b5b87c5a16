"""What the page Compare needs of streamlit."""
