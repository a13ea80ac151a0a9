"""The ``nccl`` engine: the libnccl.so.2 of the nodes, called rank by rank.

Libraries, rank slots and verdicts are pure; the engine and the round runner talk to nodes.
"""
