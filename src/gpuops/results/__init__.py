"""Results of operations as data, each with its JSON document; `gpuops.report` prints them."""
