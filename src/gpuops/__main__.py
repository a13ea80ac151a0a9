"""Entry point of ``python -m gpuops``, which is the same as ``gpuops``."""

from gpuops.cli import main

main()
