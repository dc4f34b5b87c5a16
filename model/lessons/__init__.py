"""Lessons: what is in one, and the questions whose answers are computed from its runs."""
