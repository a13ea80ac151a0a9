"""Collective: all-reduce between nodes, measured: what may be disturbed, the ladder before the load, the engines."""
