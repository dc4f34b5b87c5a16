"""Pictures of the page Why causal."""
