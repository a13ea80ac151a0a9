"""One file for each program that a lab host has; each prints the model the way the real program does."""
