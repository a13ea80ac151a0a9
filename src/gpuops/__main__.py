"""``python -m gpuops`` is ``gpuops``."""

from gpuops.cli import main

main()
