"""The proof that a node is idle, from the node itself and from its scheduler, and the lease that keeps it so."""
