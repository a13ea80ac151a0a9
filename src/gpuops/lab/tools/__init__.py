"""One module for each program of a lab host; each prints the model the way the real program does."""
