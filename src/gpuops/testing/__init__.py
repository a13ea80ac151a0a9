"""Users' own tests in pytest-testinfra, over gpuops' own connections: a pytest plugin and a process that runs them."""
