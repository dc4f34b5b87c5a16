"""The Cross-attention page's pieces."""
