"""Pictures of the Mask Lab."""
