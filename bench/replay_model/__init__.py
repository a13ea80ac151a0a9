"""A fleet over weeks, for bench/replay.py. It imports nothing from gpuops, and shares no figure with it."""
