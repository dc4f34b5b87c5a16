"""Activation patching on the page Compare, and the page Circuits."""
