"""Images as tokens: reading them, and where each of their tokens is in them."""
