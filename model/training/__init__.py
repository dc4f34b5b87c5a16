"""Training of the models that ship: `python -m model.training NAME --text DIR`."""
