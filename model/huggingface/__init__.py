"""Hugging Face models, with every attention computed by Unmask's own attention core."""
