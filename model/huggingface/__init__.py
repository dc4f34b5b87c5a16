"""Any Hugging Face model through our own attention."""
