"""Faults: each a transaction over the model, so that it shows the same everywhere."""
