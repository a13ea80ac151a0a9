"""The pytest plugin of gpuops: the connection ``gpuops://`` for testinfra, and the fixtures ``facts`` and ``profile``.

pytest loads it wherever gpuops is installed, so it imports the rest only if it is needed.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpuops.profile import Profile
    from gpuops.testing.reach import HostFacts

_MARKS = (
    "quick: gpuops runs this test at every level",
    "standard: gpuops runs this test from level standard on",
    "burnin: gpuops runs this test at level burnin only",
    "severity(word): what a failure is to gpuops: info, warn, fail, reset, reboot, isolate or rma",
    "fix(text): what to do about a failure",
    "timeout(seconds): how long the test may take in gpuops validate",
)


def pytest_configure(config: pytest.Config) -> None:
    """Register marks, and the connection if testinfra is installed."""
    for mark in _MARKS:
        config.addinivalue_line("markers", mark)
    if importlib.util.find_spec("testinfra") is None:
        return
    from gpuops.testing import backend, hostspec

    backend.register()
    hosts = getattr(config.option, "hosts", None)
    if hosts and hostspec.SCHEME in hosts:
        config.option.hosts = hostspec.distributed(hosts)
    if backend.GpuopsBackend.reach is None:
        from gpuops.testing.opened import Opened

        reach = backend.GpuopsBackend.reach = Opened()
        config.add_cleanup(reach.close)
        config.add_cleanup(lambda: setattr(backend.GpuopsBackend, "reach", None))


@pytest.fixture(scope="module")
def facts(host: Any) -> HostFacts:
    """Return the values of gpuops' probes of this host: ``facts[smi]``, or by name."""
    from gpuops.testing.reach import HostFacts

    own = _backend(host)
    return HostFacts(own.means(), own.hostname, own.inventory)


@pytest.fixture(scope="module")
def profile(host: Any) -> Profile:
    """Return the numbers that gpuops expects of this host: ``profile["gpu.count"]``."""
    own = _backend(host)
    expected: Profile = own.means().profile(own.hostname, own.inventory)
    return expected


def _backend(host: Any) -> Any:
    from gpuops.errors import InputError
    from gpuops.testing.backend import GpuopsBackend

    if not isinstance(host.backend, GpuopsBackend):
        raise InputError(f"{host}: facts and profile need a host of gpuops; pytest --hosts=gpuops://GROUP")
    return host.backend
