"""The computations of the Mask Lab: masks as code and files, and the values of blocked cells."""
