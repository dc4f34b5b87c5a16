"""The Lessons page's pieces."""
