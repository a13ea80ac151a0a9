"""Measured all-reduce within and between nodes: proof of idleness, network tests, engines and verdicts."""
