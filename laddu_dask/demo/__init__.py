"""The demonstration: pseudo-data from a real sample, a fit, a figure, in one command."""
