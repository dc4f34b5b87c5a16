"""The row of views of the chosen head."""
