"""Builds stand-ins for NVIDIA's packages: their names, dependencies and order of versions, and what fails without what.

packages.py FOLDER. The driver is there twice. Its "module" is loaded at boot and then in /run/nvidia; a module of
another version than the programs, or none, makes those complain as the real ones do.
"""

import pathlib
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

DRIVERS = ("580.159.04", "580.173.02")
NCCLS = ("2.28.9-1+cuda13.0", "2.29.7-1+cuda13.0")
DCGMS = ("1:4.5.2-1", "1:4.6.0-1")
PIN = "Package: nvidia-* libnvidia-*\nPin: version {}-*\nPin-Priority: 1001\n"

DKMS = """\
#!/bin/sh
# dkms status -m MODULE, dkms install MODULE/VERSION: builds where there are kernel headers, else leaves a log
kernel=$(uname -r) tree=/var/lib/dkms/$2
case $1 in
status) cat "/var/lib/dkms/$3"/*/status 2>/dev/null ;;
install)
    rm -rf "${tree%/*}"; mkdir -p "$tree/build"
    if [ -d "/lib/modules/$kernel/build" ]; then echo "$2, $kernel, x86_64: installed" >"$tree/status"; exit; fi
    echo "$2: added" >"$tree/status"
    echo "make: *** /lib/modules/$kernel/build: No such file or directory.  Stop." >"$tree/build/make.log"
    exit 10 ;;
esac
"""
LOAD = """\
[Unit]
Description=Stand-in for the kernel's loading of its module
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'grep -q "{version}.*: installed" /var/lib/dkms/nvidia/*/status && echo {version} >/run/nvidia'
"""
SMI = """\
#!/bin/sh
loaded=$(cat /run/nvidia 2>/dev/null) || {{
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest" \
        "NVIDIA driver is installed and running."
    exit 9
}}
[ "$loaded" = {version} ] || {{ echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18; }}
echo "Driver Version: {version}"
"""
FABRIC_MANAGER = """\
#!/bin/sh
loaded=$(cat /run/nvidia 2>/dev/null)
[ "$loaded" = {version} ] && exec sleep infinity
echo "fabric manager NVIDIA GPU driver interface version {version} don't match with driver version $loaded." \
    "Please update with matching NVIDIA driver package." >&2
exit 1
"""
DAEMON = "#!/bin/sh\nexec sleep infinity\n"
UNIT = "[Service]\nExecStart={}\n[Install]\nWantedBy=multi-user.target\n"


@dataclass(frozen=True)
class Package:
    """One package; ``files`` are by path, and what lies in a ``bin`` may be run. ``runs`` is what its postinst does."""

    name: str
    version: str
    depends: str = ""
    files: dict[str, str] = field(default_factory=dict)
    runs: str = ""
    provides: str = ""

    @property
    def control(self):
        """Its fields."""
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "amd64",
            "Maintainer": "Lab <lab@example.com>",
            "Depends": self.depends,
            "Provides": self.provides,
            "Conflicts": self.provides,
            "Description": "stand-in",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)

    def build(self, folder):
        """Make the package's file."""
        tree = folder / f"{self.name}_{self.version}"
        for path, text in {"DEBIAN/control": self.control, **self.files}.items():
            write(tree / path, text)
        if self.runs:
            write(tree / "DEBIAN/postinst", f'#!/bin/sh\n[ "$1" = configure ] || exit 0\n{self.runs}\n')
        version = self.version.replace(":", "%3a")
        made = folder / f"{self.name}_{version}_amd64.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, made], check=True, stdout=subprocess.DEVNULL
        )


def write(path, text):
    """A file in a package's tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if path.parent.name == "bin" or path.name == "postinst" else 0o644)


def daemon(name, program=DAEMON):
    """The files of a program that runs as a unit."""
    return {f"usr/bin/{name}": program, f"usr/lib/systemd/system/{name}.service": UNIT.format(f"/usr/bin/{name}")}


def driver(version):
    """All packages that must be of the driver's very version."""
    full = f"{version}-1"
    load = LOAD.format(version=version)
    module = {
        f"usr/src/nvidia-{version}/dkms.conf": f"PACKAGE_VERSION={version}\n",
        "usr/lib/systemd/system/nvidia-load.service": load,
        "usr/lib/systemd/system/sysinit.target.d/nvidia.conf": "[Unit]\nWants=nvidia-load.service\n",
    }
    smi = {"usr/bin/nvidia-smi": SMI.format(version=version)}
    same = f"(= {full})"
    pinning = {f"etc/apt/preferences.d/nvidia-driver-pinning-{version}.pref": PIN.format(version)}
    build = f"dkms install nvidia/{version} || true  # as some real ones do\nsystemctl daemon-reload"
    together = ", ".join(f"{name} {same}" for name in ("nvidia-kernel-open-dkms", "nvidia-driver-cuda"))
    beneath = ", ".join(f"{name} {same}" for name in ("libnvidia-compute", "nvidia-persistenced"))
    yield Package(f"nvidia-driver-pinning-{version}", full, files=pinning, provides="nvidia-driver-pinning")
    yield Package("nvidia-open", full, together)
    yield Package("nvidia-kernel-open-dkms", full, "dkms", module, build)
    yield Package("nvidia-driver-cuda", full, beneath, smi)
    yield Package("libnvidia-compute", full, files={f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}": ""})
    yield Package("nvidia-persistenced", full, files=daemon("nvidia-persistenced"))
    program = FABRIC_MANAGER.format(version=version)
    yield Package("nvidia-fabricmanager", full, files=daemon("nvidia-fabricmanager", program))
    yield Package("libnvidia-nscq", full, files={f"usr/lib/x86_64-linux-gnu/libnvidia-nscq.so.{version}": ""})
    yield Package("nvidia-imex", full, files=daemon("nvidia-imex"))


def others():
    """What has versions of its own."""
    built = 'mkdir -p "/lib/modules/$(uname -r)/build"; for one in /var/lib/dkms/*/*; do [ ! -d "$one" ] ||'
    built += ' dkms install "${one#/var/lib/dkms/}"; done'
    yield Package(f"linux-headers-{platform.release()}", "6.1.158-1", runs=built)
    yield Package("dkms", "3.0.10-8+deb12u1", files={"usr/bin/dkms": DKMS})
    yield Package("cuda-keyring", "1.1-1", files={"usr/share/keyrings/cuda-archive-keyring.gpg": ""})
    for version in NCCLS:
        library = {f"usr/lib/x86_64-linux-gnu/libnccl.so.{version.partition('-')[0]}": ""}
        yield Package("libnccl2", version, files=library)
        yield Package("libnccl-dev", version, f"libnccl2 (= {version})", {"usr/include/nccl.h": ""})
    for version in DCGMS:
        core = f"datacenter-gpu-manager-4-core (= {version})"
        yield Package("datacenter-gpu-manager-4-core", version, files=daemon("nvidia-dcgm"))
        yield Package("datacenter-gpu-manager-4-cuda13", version, core)
    slow = "while [ -e /var/lib/slow ]; do sleep 0.1; done"
    toolkit = {"usr/local/cuda-13.0/lib64/libcudart.so.13": "large\n" * 100_000}
    yield Package("cuda-toolkit-13-0", "13.0.2-1", files=toolkit, runs=slow)
    yield Package("nvidia-container-toolkit-base", "1.20.0-1", files={"usr/bin/nvidia-ctk": DAEMON})
    yield Package("nvidia-container-toolkit", "1.20.0-1", "nvidia-container-toolkit-base (= 1.20.0-1)")
    yield Package("doca-ofed", "3.2.3-019000", files={"usr/bin/ofed_info": "#!/bin/sh\necho OFED-internal-25.10:\n"})


def main(folder):
    """Build them all."""
    packages = [*others(), *(package for version in DRIVERS for package in driver(version))]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda package: package.build(folder), packages))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
