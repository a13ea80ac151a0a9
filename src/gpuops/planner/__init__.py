"""The layout planner: memory and step time of a training job on a cluster, for many layouts at once; no I/O.

Import the modules themselves: those that compute with arrays load numpy, which other commands do not need.
"""
