"""Containers get the libraries that are on disk, and every GPU."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.libraries import CdiSpecs, Libraries, libraries
from gpuops.probes.nvidia.libraries import cdi as probe


@check(
    needs=(probe, libraries, driver),
    tolerates=(libraries, driver),
    severity="fail",
    tags=("quick", "driver"),
    catches="containers that do not start, or start without a GPU, after an update of the driver",
    fix="nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml, then restart the container runtime",
)
def cdi(
    specs: CdiSpecs, found: Libraries | Unknown, loaded: Driver | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """The CDI specifications name only library versions that are on disk, and as many GPUs as the driver manages.

    Source: NVIDIA Container Toolkit documentation, Container Device Interface (specifications are generated for one
    driver version; since 1.18 nvidia-cdi-refresh renews them).
    """
    if not specs.paths:
        yield NotApplicable("the machine has no container device specification (CDI) of NVIDIA's GPUs")
        return
    where = ", ".join(specs.paths)
    if isinstance(found, Unknown):
        yield found
    else:
        on_disk = frozenset().union(*found.versions.values())
        gone = ", ".join(sorted(specs.versions - on_disk))
        if gone:
            message = f"{where} names libraries of {gone}, which are not on disk"
            yield Finding(message, expected="libraries on disk", found=gone, part="driver", code="version")
    if isinstance(loaded, Unknown):
        yield loaded
    elif specs.gpus and specs.gpus < len(loaded.gpu_addresses):
        gpus = len(loaded.gpu_addresses)
        message = f"{where} describes {specs.gpus} GPUs, the driver manages {gpus}"
        yield Finding(message, expected=gpus, found=specs.gpus, part="driver", code="gpus")
