"""The version of gpuops, as reports, journals and ``gpuops --version`` show it."""

__version__ = "0.1.0"
