"""Circuits: activation patching, OV and QK circuits, composition of heads."""
