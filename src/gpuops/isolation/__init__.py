"""Isolation: which rounds of all-reduce to run next, and what the figures of all rounds accuse; pure.

Measuring is `gpuops.collective`'s and simulating `gpuops.isolation.simulation`'s: both feed the same evidence.
"""
