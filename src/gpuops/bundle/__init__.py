"""Evidence of one node for its vendor: what to ask, what to take out, and the archive with its manifest."""
