"""Start of a job on its nodes over gpuops' own connections: seats, logs, the first failure, a clean end."""
