"""What the Padding page needs of streamlit."""
