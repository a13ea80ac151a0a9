"""The ``nccl-tests`` engine: all_reduce_perf and its siblings, started as their users start them."""
