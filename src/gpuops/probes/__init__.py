"""Probes: one module a tool, with the types of its answer, the parser of its text, and the `Probe` that asks it."""
