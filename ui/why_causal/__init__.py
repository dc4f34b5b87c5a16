"""The pieces of the page Why causal."""
