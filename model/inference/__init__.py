"""Masks as inference engines and kernels meet them: what a mask costs, and texts run in several calls."""
