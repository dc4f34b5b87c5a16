"""What the Mask Lab computes: masks as code and files, and the value that blocks."""
