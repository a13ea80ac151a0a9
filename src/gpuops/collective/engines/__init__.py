"""Engines: the ways to run an all-reduce on nodes, one file each."""
