"""What a page asks of a model, as plain data; who does it, in which order, and where."""
