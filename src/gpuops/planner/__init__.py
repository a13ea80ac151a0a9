"""The layout planner: memory and step time of a training job on a cluster, for many layouts at once; pure.

Import the modules themselves: those that compute with arrays load numpy, which other commands do not need.
"""
