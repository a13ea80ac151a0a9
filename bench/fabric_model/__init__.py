"""A model of GPU fabrics that shares no code and no figure with gpuops; `bench/fabric_simulator.py` runs it."""
