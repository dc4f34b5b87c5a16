"""Pictures of the Cross-attention page."""
