"""The Pixels page's pieces."""
