"""Version of gpuops, shown in reports, journals and ``gpuops --version``."""

__version__ = "0.1.0"
