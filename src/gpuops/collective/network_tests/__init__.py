"""The network between nodes, tested from cheap to costly before any load is put on it."""
