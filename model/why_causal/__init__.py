"""The twins, two models trained with and without the causal mask, and a small model trained while the user watches."""
