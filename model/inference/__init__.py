"""Masks in inference engines and kernels: the cost of a mask, and texts run in several calls."""
