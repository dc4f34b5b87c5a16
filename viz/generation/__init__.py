"""Pictures of the Generation page."""
