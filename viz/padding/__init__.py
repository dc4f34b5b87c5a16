"""Pictures of the Padding page."""
