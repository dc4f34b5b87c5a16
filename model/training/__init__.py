"""How the models that ship were made: `python -m model.training NAME --text DIR`."""
