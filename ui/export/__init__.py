"""The parts of the page Export."""
