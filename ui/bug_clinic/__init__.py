"""The Bug clinic's pieces."""
