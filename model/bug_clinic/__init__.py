"""Attention as people get it wrong, and the laws that catch it."""
