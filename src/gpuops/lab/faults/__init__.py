"""Faults: each changes the model in one transaction, so that it shows consistently everywhere."""
