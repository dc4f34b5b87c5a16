"""The Mask Lab's pieces."""
