"""The libraries of the loaded driver are on disk, and not empty."""

from collections.abc import Iterator

from gpuops import Finding, Profile, check
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.libraries import NAMES, Libraries
from gpuops.probes.nvidia.libraries import libraries as probe


@check(
    needs=(probe, driver),
    severity="fail",
    tags=("quick", "start", "driver"),
    explains=("cdi:version",),
    catches="programs that cannot load CUDA, although nvidia-smi and every other check work",
    fix="reinstall the driver's library packages (libnvidia-compute), then run ldconfig",
)
def libraries(found: Libraries, loaded: Driver, _profile: Profile) -> Iterator[Finding]:
    """libcuda and libnvidia-ml exist in the loaded version and as .so.1, which programs load, and are not empty.

    Stubs of the CUDA toolkit and 32-bit copies do not count. Source: nebius/soperator, issue 2684 (empty libraries were
    mounted into containers); leptonai/gpud, library component (the two names).
    """
    version = loaded.loaded_version
    broken = {name: [path for path in found.broken if f"/{name}.so" in path] for name in NAMES}
    for paths in filter(None, broken.values()):
        message = f"{' and '.join(paths)}: empty, or not a library"
        yield Finding(message, expected="a library", found="no library", part="driver", code="empty")
    names = [name for name in NAMES if not broken[name]]
    if names and not any(version in found.versions[name] for name in NAMES):
        others = ", ".join(sorted({v for name in names for v in found.versions[name] if "." in v})) or "none"
        message = f"the driver {version} is loaded, the libraries on disk are {others}"
        fix = "reboot if the driver was updated; else install the libraries of the loaded version"
        yield Finding(message, expected=version, found=others, part="driver", code="version", fix=fix)
        return
    for name in names:
        missing = [f"{name}.so.{suffix}" for suffix in (version, "1") if suffix not in found.versions[name]]
        if missing:
            message = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            yield Finding(message, expected=version, found="missing", part="driver")
