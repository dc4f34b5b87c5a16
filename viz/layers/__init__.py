"""The page Across layers: pictures and words."""
