"""Views of one head, each of the same weights: its tokens lit, arcs, bars, what it carries, one cell, numbers."""
