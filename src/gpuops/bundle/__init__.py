"""Evidence of one node for its vendor: what to collect, what to redact, and the archive with its manifest."""
