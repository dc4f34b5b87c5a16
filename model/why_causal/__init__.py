"""The twins, and a small model trained while somebody watches."""
