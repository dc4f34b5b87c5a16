"""Does a module obey the mask it declares? Its own forward, its own kernels; measured, not read from its code."""
