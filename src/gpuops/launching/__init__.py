"""Start of a job on its nodes over gpuops' own connections: rank positions, logs, the first failure, a clean end."""
