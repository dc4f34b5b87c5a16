"""The digits model, its writing, and who recognises what it wrote."""
