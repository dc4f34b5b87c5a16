"""The Generation page's pieces."""
