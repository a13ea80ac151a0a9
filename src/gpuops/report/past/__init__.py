"""Text reports of the past: what changed, the history of nodes, parts and links, and the state of one node."""
