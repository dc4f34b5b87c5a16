"""Pictures of the Pixels page."""
