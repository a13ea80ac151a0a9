"""Collective operations in the lab: what was launched where, how fast the hardware model is, and what is printed."""
