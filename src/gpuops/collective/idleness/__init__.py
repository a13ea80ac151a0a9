"""Proof that a node is idle, from the node and from its scheduler, and the lease that keeps it idle."""
