"""Operations, one module for each kind of request; `gpuops.Cluster.ask` calls them.

An operation takes a `gpuops.workspace.Workspace` and a request, and returns a result. It sends events and never prints.
"""
