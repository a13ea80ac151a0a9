"""Simulated collective operations: which program was started where, how fast the hardware is, and the output."""
