"""Pictures of circuits: activation patching, OV and QK circuits, composition."""
