"""What the page Ablation needs of streamlit."""
