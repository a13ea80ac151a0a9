"""The Fabric tasks of gpuops: ``fab --list``."""

from gpuops.fabfile import namespace  # noqa: F401
