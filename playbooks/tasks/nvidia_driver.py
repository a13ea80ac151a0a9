"""NVIDIA's kernel driver and its libraries, at one exact version."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuops import Change, Command, Failed, Files, Later, NeedsOperator, Plan, Unknown, read_files, task, use
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.host.system import System, system
from gpuops.probes.nvidia.driver import Driver, driver

_CONF, _SHOWN = "/etc/modprobe.d/gpuops-nvidia.conf", "/proc/driver/nvidia/params"
_RUNFILE = "/usr/bin/nvidia-uninstall"
_PINNING = "nvidia-driver-pinning"
# whatever of these is installed at a driver version (580.126.20-1) changes with it; apt would keep a newer library, so
# all packages are named on Debian and Ubuntu, while dnf handles all but the separate ones
_FAMILY = ("*nvidia*", "libnvsdm*", "cuda-drivers*")
_DRIVERS_VERSION = r"(?:\d+:)?\d{3}\.\d+(?:\.\d+)?-"
_APART = ("nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm", "nvidia-imex")
_MOK_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")  # Ubuntu's key, and that of dkms 3
_TURING, _BLACKWELL = 0x1E00, 0x2900  # the first PCI device numbers of these GPUs
_LAST_FOR_VOLTA, _FIRST_OPEN_ONLY = 580, 615  # NVIDIA's driver installation guides, 580 to 620


@dataclass(frozen=True)
class Params:
    """``version`` of the driver, branch 580 or later, as three numbers (580.126.20).

    ``modules`` selects the kernel modules. Open ones are for Turing and later, and the only ones for Blackwell and for
    branches from 615 on. Proprietary ones are the only ones for Volta and earlier, up to branch 580. ``origin`` is cuda
    for NVIDIA's CUDA repository, or distribution for Ubuntu's own server packages, whose modules are signed for Secure
    Boot. ``compute_only`` omits the graphics packages. ``options`` are options of the module (``NVreg_…``).
    """

    version: str
    modules: Literal["open", "proprietary"] = "open"
    origin: Literal["cuda", "distribution"] = "cuda"
    compute_only: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `ValueError` unless the packages of the version are known by name."""
        if not re.fullmatch(r"\d{3}\.\d+(\.\d+)?", self.version) or self.branch < _LAST_FOR_VOLTA:
            raise ValueError(f'version must be of branch 580 or later (580.126.20), found "{self.version}"')
        if self.modules == "proprietary" and self.branch >= _FIRST_OPEN_ONLY:
            raise ValueError(f"branch {self.branch} has open kernel modules only")
        for word in (*self.options, *self.options.values()):
            if not re.fullmatch(r"[!-\[\]-~]+", word):
                raise ValueError(f'"{word}" is not allowed in a file of modprobe.d')

    @property
    def branch(self) -> int:
        """The first number of the version."""
        return int(self.version.partition(".")[0])

    @property
    def conf(self) -> str:
        """The content of the file in modprobe.d."""
        return f"options nvidia {' '.join(f'{key}={value}' for key, value in self.options.items())}\n"


@task
def nvidia_driver(params: Params) -> Plan:
    """All packages of the installed version change together, including the fabric manager; nouveau is blacklisted.

    The packages are pinned and held. The module must be built, and signed if Secure Boot requires it. If the node runs
    another driver than the installed one, it is recorded that it needs a reboot: see the task reboot.

    On Debian the component contrib must be enabled (task apt_repo). On RHEL and Rocky dkms comes from EPEL, which must
    be configured (task dnf_repo); neither was tested on a real one.
    """
    machine, functions, files = yield (system, gpu_functions, Files((_RUNFILE, _CONF, _SHOWN)))
    if isinstance(machine, Unknown):
        yield Failed(f"cannot determine the distribution: {machine.why}")
    seen = read_files(files.out)
    yield from _refused(params, machine, () if isinstance(functions, Unknown) else functions, seen)
    if params.origin == "cuda":
        yield from use("kernel_headers")
    yield from use("kernel_module", name="nouveau", state="blacklisted", options={"modeset": "0"})
    stale = yield from _options(params, seen)
    in_place = yield from _packages(params, machine)
    if not in_place:
        yield Later("the module is checked after its packages are installed")
        return
    if params.origin == "cuda":
        yield from use("dkms", module="nvidia", version=params.version)
        yield from _trusted()
    loaded = yield driver
    if stale or not _is_loaded(params, loaded):
        yield from use("reboot_required", reason="nvidia-driver")


def _refused(params: Params, machine: System, functions: Iterable[PciFunction], seen: Mapping[str, str]) -> Plan:
    """Yield what is impossible, before anything is changed."""
    if _RUNFILE in seen:
        yield Failed(f"the driver is from NVIDIA's own installer, which conflicts with packages; run {_RUNFILE}")
    if params.origin == "distribution" and machine.os_id != "ubuntu":
        yield Failed(f"only Ubuntu has its own driver packages for servers, but this is {machine.os_id}")
    for function in functions:
        number = int(function.device_id, 16) if function.is_gpu else _TURING
        if number < _TURING and (params.modules == "open" or params.branch > _LAST_FOR_VOLTA):
            yield Failed(f"{function.text} needs the proprietary modules of branch {_LAST_FOR_VOLTA}")
        if number >= _BLACKWELL and params.modules == "proprietary":
            yield Failed(f"{function.text} has open kernel modules only")


def _options(params: Params, seen: Mapping[str, str]) -> Plan:
    """Write the module's options; return whether it runs with others."""
    if not params.options:
        return False
    yield from use("file", path=_CONF, content=params.conf)
    yield from use("initramfs", files=[_CONF], due=seen.get(_CONF) != params.conf)
    running = dict(line.split(": ", 1) for line in seen.get(_SHOWN, "").splitlines() if ": " in line)
    # the driver shows each without its prefix, and omits some
    return any(running.get(key.removeprefix("NVreg_"), value) != value for key, value in params.options.items())


def _packages(params: Params, machine: System) -> Plan:
    """Plan the transaction; return whether nothing was left to do."""
    debian, red_hat = yield (
        Command(("dpkg-query", "-W", "-f=${Package}\t${db:Status-Abbrev}\t${Version}\n", "--", *_FAMILY)),
        Command(("rpm", "-q", "--qf", "%{NAME}\tii \t%{VERSION}-%{RELEASE}\n", "--", *_APART)),
    )
    rows = re.findall(r"^(\S+)\t.i.\t(\S+)$", (red_hat if debian.missing else debian).out, re.MULTILINE)
    pinnings = [name for name, _ in rows if name.startswith(_PINNING)]
    family = [name for name, version in rows if re.match(_DRIVERS_VERSION, version) and name not in pinnings]
    if params.origin == "cuda":
        chosen = yield from (_stream(params) if debian.missing else _pinning(params, pinnings))
        if not chosen:
            return False
    along = family if debian.missing else (yield from _offered(params, family))
    names = dict.fromkeys((*_names(params, machine, red_hat=debian.missing), *along))
    gone = [name for name in family if name not in along]
    in_place = yield from use("package_set", names=list(names), version=params.version, allow_remove=gone)
    if params.origin == "distribution":
        kinds = (machine.kernel, machine.kernel.rpartition("-")[2])
        yield from use("package", names=[f"linux-modules-nvidia-{_server(params)}-{kind}" for kind in kinds])
    return in_place


def _offered(params: Params, family: list[str]) -> Plan:
    """Return those of ``family`` that exist in this version too; others had another name before."""
    if not family:
        return []
    answer = yield Command(("apt-cache", "madison", "--", *family))
    version = rf"(?:\d+:)?{re.escape(params.version)}-"
    offered = re.findall(rf"^ *(\S+) \| *{version}", answer.out, re.MULTILINE)
    return [name for name in family if name in offered]


def _names(params: Params, machine: System, *, red_hat: bool) -> tuple[str, ...]:
    """Return the packages of the driver; since 590 their names lack the branch."""
    open_modules = params.modules == "open"
    if params.origin == "distribution":
        return f"nvidia-headless-no-dkms-{_server(params)}", f"nvidia-utils-{params.branch}-server"
    # Ubuntu's packages contain the daemon; elsewhere it is only recommended
    daemon = ("nvidia-persistenced",) if red_hat or machine.os_id == "debian" else ()
    if not params.compute_only:
        return ("nvidia-open" if open_modules else "cuda-drivers", *daemon)
    if red_hat:
        return "nvidia-driver-cuda", "kmod-nvidia-open-dkms" if open_modules else "kmod-nvidia-latest-dkms", *daemon
    if machine.os_id == "debian":
        return "nvidia-driver-cuda", "nvidia-kernel-open-dkms" if open_modules else "nvidia-kernel-dkms", *daemon
    branch = f"-{params.branch}" if params.branch < 590 else ""
    libraries = ("libnvidia-compute", "libnvidia-cfg1", "nvidia-utils", "nvidia-compute-utils")
    module = f"nvidia-dkms{branch}{'-open' if open_modules else ''}"
    return (module, *(f"{name}{branch}" for name in libraries), "nvidia-modprobe")


def _server(params: Params) -> str:
    """Return the suffix of Ubuntu's own server packages."""
    return f"{params.branch}-server{'-open' if params.modules == 'open' else ''}"


def _pinning(params: Params, installed: list[str]) -> Plan:
    """Install the package that pins all driver packages to one version for apt, before any of them."""
    pinning = f"{_PINNING}-{params.version}"
    others = [name for name in installed if name != pinning]
    yield from use("package", names=[pinning], allow_remove=others)
    if pinning not in installed:
        yield Later(f"the driver packages that apt chooses depend on {pinning}")
    return pinning in installed


def _stream(params: Params) -> Plan:
    """Enable dnf's module stream of the branch."""
    stream = f"{params.branch}-{'open' if params.modules == 'open' else 'dkms'}"
    listed = Command(("dnf", "-q", "module", "list", "--enabled", "nvidia-driver"), 120, become="always")
    enabled = re.findall(r"^nvidia-driver\s+(\S+)", (yield listed).out, re.MULTILINE)
    if enabled != [stream]:
        verb = ("switch-to", "--allowerasing") if enabled else ("enable",)
        words = ("dnf", "-y", "module", *verb, f"nvidia-driver:{stream}")
        command = Command(words, 1800, become="always")
        yield Change(f"select the driver stream {stream} in dnf", command, detach=True)
        yield Later(f"the driver packages that dnf chooses depend on the stream {stream}")
    return enabled == [stream]


def _trusted() -> Plan:
    """Require an enrolled key for Secure Boot, which only a person at the console can enrol."""
    state, *keys = yield (
        Command(("mokutil", "--sb-state")),
        *(Command(("mokutil", "--test-key", key), become="if-refused") for key in _MOK_KEYS),
    )
    if "SecureBoot enabled" in state.out and not any("already enrolled" in key.out + key.err for key in keys):
        yield NeedsOperator(
            f"Secure Boot refuses the module: run mokutil --import {_MOK_KEYS[0]} (or {_MOK_KEYS[1]}), reboot, and "
            "confirm the key at the console during that boot; or set origin: distribution, or turn Secure "
            "Boot off"
        )


def _is_loaded(params: Params, loaded: Driver | Unknown) -> bool:
    return (
        not isinstance(loaded, Unknown)
        and loaded.loaded_version == params.version
        and loaded.open_kernel_modules == (params.modules == "open")
    )
