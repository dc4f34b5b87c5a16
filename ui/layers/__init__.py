"""What the page Across layers needs of streamlit."""
