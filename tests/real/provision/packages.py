"""Builds stand-ins for NVIDIA's packages: their names, dependencies and order of versions, and what fails without what.

packages.py FOLDER: a folder for each repository, Debian's own and NVIDIA's two, as a mirror has them. There are the
versions of the playbooks' stacks, and others. The module of a driver is loaded at boot (machine/usr/sbin/modprobe);
one of another version than the programs, or none, makes those complain as the real ones do. What they say of the GPUs
is the machine's (hardware.py).
"""

import pathlib
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import yaml

STACKS = [
    yaml.safe_load((pathlib.Path(__file__).parents[3] / f"playbooks/stacks/{name}.yml").read_text())
    for name in ("current", "previous")
]
DRIVERS = {"580.159.04", "580.173.02", *(stack["driver"]["version"] for stack in STACKS)}
NCCLS = {"2.29.7-1+cuda13.0", *("{version}-1+cuda{cuda}".format(**stack["nccl"]) for stack in STACKS)}
DCGMS = {f"1:{stack['dcgm']['version']}-1" for stack in STACKS}
TOOLKITS = {f"{stack['container_toolkit']['version']}-1" for stack in STACKS}
PLACES = ("debian", "debian12/x86_64", "stable/deb/amd64")
DEBIAN, CUDA, CONTAINERS = PLACES
PIN = "Package: nvidia-* libnvidia-*\nPin: version {}-*\nPin-Priority: 1001\n"

DKMS = """\
#!/bin/sh
# dkms status -m MODULE, dkms install MODULE/VERSION: builds where there are kernel headers, else leaves a log
kernel=$(uname -r) tree=/var/lib/dkms/$2 name=${2%/*} version=${2#*/}
case $1 in
status) cat "/var/lib/dkms/$3"/*/status 2>/dev/null ;;
install)
    rm -rf "${tree%/*}"; mkdir -p "$tree/build"
    if [ -d "/lib/modules/$kernel/build" ]; then
        cp "/usr/src/$name-$version/modinfo" "/lib/modules/$kernel/$name"
        echo "$2, $kernel, x86_64: installed" >"$tree/status"; exit
    fi
    echo "$2: added" >"$tree/status"
    echo "make: *** /lib/modules/$kernel/build: No such file or directory.  Stop." >"$tree/build/make.log"
    exit 10 ;;
esac
"""
MODINFO = """\
filename:       /lib/modules/updates/dkms/nvidia.ko
version:        {version}
license:        Dual MIT/GPL
"""
SMI = """\
#!/bin/sh
loaded=$(cat /sys/module/nvidia/version 2>/dev/null) || {{
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest" \
        "NVIDIA driver is installed and running."
    exit 9
}}
[ "$loaded" = {version} ] || {{ echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18; }}
[ -e /run/nvidia-fabricmanager ] && fabric=joined || fabric=apart
IFS=_; set -- nvidia-smi "$@"
exec sed "s/580\\.0\\.0/{version}/g" "/usr/lib/hardware/$fabric/$*"
"""
FABRIC_MANAGER = """\
#!/bin/sh
[ "$1" != --version ] || {{ echo "Fabric Manager version is : {version}"; exit; }}
loaded=$(cat /sys/module/nvidia/version 2>/dev/null)
[ "$loaded" = {version} ] && touch /run/nvidia-fabricmanager && exec sleep infinity
echo "fabric manager NVIDIA GPU driver interface version {version} don't match with driver version $loaded." \
    "Please update with matching NVIDIA driver package." >&2
exit 1
"""
SAYS = """\
#!/bin/sh
IFS=_; set -- {program} "$@"
exec cat "/usr/lib/hardware/joined/$*"
"""
DAEMON = "#!/bin/sh\nexec sleep infinity\n"
UNIT = "[Service]\nExecStart={}\n[Install]\nWantedBy=multi-user.target\n"
PATH = "[Path]\nPathChanged=/lib/modules\nUnit=nvidia-ctk.service\n[Install]\nWantedBy=multi-user.target\n"


@dataclass(frozen=True)
class Package:
    """One package of the repository ``place``.

    ``files`` are by path, and what lies in a ``bin`` may be run. ``runs`` is what its postinst does.
    """

    name: str
    version: str
    depends: str = ""
    files: dict[str, str] = field(default_factory=dict)
    runs: str = ""
    provides: str = ""
    conflicts: str = ""
    place: str = CUDA

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
            "Conflicts": self.provides or self.conflicts,
            "Description": "stand-in",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)

    def build(self, folder):
        """Make the package's file."""
        tree = folder / f"{self.name}_{self.version}.tree"
        for path, text in {"DEBIAN/control": self.control, **self.files}.items():
            write(tree / path, text)
        if self.runs:
            write(tree / "DEBIAN/postinst", f'#!/bin/sh\n[ "$1" = configure ] || exit 0\n{self.runs}\n')
        version = self.version.replace(":", "%3a")
        made = folder / self.place / f"{self.name}_{version}_amd64.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, made], check=True, stdout=subprocess.DEVNULL
        )


def write(path, text):
    """A file in a package's tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if path.parent.name == "bin" or path.name == "postinst" else 0o644)


def daemon(name, program=DAEMON, binary=""):
    """The files of a program that runs as a unit."""
    binary = f"usr/bin/{binary or name}"
    return {binary: program, f"usr/lib/systemd/system/{name}.service": UNIT.format(f"/{binary}")}


def says(program):
    """The file of a program that tells what the machine is."""
    return {f"usr/bin/{program}": SAYS.format(program=program)}


def driver(version):
    """All packages that must be of the driver's very version."""
    full = f"{version}-1"
    module = {
        f"usr/src/nvidia-{version}/dkms.conf": f"PACKAGE_VERSION={version}\n",
        f"usr/src/nvidia-{version}/modinfo": MODINFO.format(version=version),
    }
    smi = {"usr/bin/nvidia-smi": SMI.format(version=version)}
    same = f"(= {full})"
    pinning = {f"etc/apt/preferences.d/nvidia-driver-pinning-{version}.pref": PIN.format(version)}
    build = f"dkms install nvidia/{version} || true  # as some real ones do"
    together = ", ".join(f"{name} {same}" for name in ("nvidia-kernel-open-dkms", "nvidia-driver-cuda"))
    beneath = ", ".join(f"{name} {same}" for name in ("libnvidia-compute", "nvidia-persistenced"))
    yield Package(f"nvidia-driver-pinning-{version}", full, files=pinning, provides="nvidia-driver-pinning")
    yield Package("nvidia-open", full, together)
    yield Package("nvidia-kernel-open-dkms", full, "dkms", module, build)
    yield Package("nvidia-driver-cuda", full, beneath, smi)
    folder, names = "usr/lib/x86_64-linux-gnu", ("cuda", "nvidia-ml")
    libraries = dict.fromkeys((f"{folder}/lib{name}.so.{version}" for name in names), "\x7fELF, or so it seems\n")
    link = "\n".join(f"ln -sf lib{name}.so.{version} /{folder}/lib{name}.so.1" for name in names)
    yield Package("libnvidia-compute", full, "", libraries, link)
    yield Package("nvidia-persistenced", full, files=daemon("nvidia-persistenced"))
    program = FABRIC_MANAGER.format(version=version)
    yield Package("nvidia-fabricmanager", full, files=daemon("nvidia-fabricmanager", program, "nv-fabricmanager"))
    yield Package("libnvidia-nscq", full, files={f"usr/lib/x86_64-linux-gnu/libnvidia-nscq.so.{version}": ""})
    yield Package("libnvsdm", full, files={f"usr/lib/x86_64-linux-gnu/libnvsdm.so.{version}": ""})
    yield Package("nvidia-imex", full, files=daemon("nvidia-imex"))


def debian():
    """What the distribution brings."""
    built = 'mkdir -p "/lib/modules/$(uname -r)/build"; for one in /var/lib/dkms/*/*; do [ ! -d "$one" ] ||'
    built += ' dkms install "${one#/var/lib/dkms/}"; done'
    yield Package(f"linux-headers-{platform.release()}", "6.1.158-1", runs=built)
    yield Package("dkms", "3.0.10-8+deb12u1", files={"usr/bin/dkms": DKMS})
    files = {**says("lspci"), "usr/bin/setpci": "#!/bin/sh\nexit 1\n"}  # no device has what it is asked for
    yield Package("pciutils", "1:3.9.0-4", files=files)
    yield Package("chrony", "4.3-2+deb12u1", files={**daemon("chrony"), **says("chronyc")}, conflicts="time-daemon")
    for name in ("rdma-core", "ibverbs-utils", "infiniband-diags", "perftest", "mstflint"):
        yield Package(name, "44.0-2")


def cuda():
    """What has versions of its own in NVIDIA's repository."""
    yield Package("cuda-keyring", "1.1-1", files={"usr/share/keyrings/cuda-archive-keyring.gpg": ""})
    for version in NCCLS:
        library = {f"usr/lib/x86_64-linux-gnu/libnccl.so.{version.partition('-')[0]}": ""}
        yield Package("libnccl2", version, files=library)
        yield Package("libnccl-dev", version, f"libnccl2 (= {version})", {"usr/include/nccl.h": ""})
    for version in DCGMS:
        same = f"(= {version})"
        name = "datacenter-gpu-manager-4"
        yield Package(f"{name}-core", version, files=daemon("nvidia-dcgm"))
        yield Package(f"{name}-proprietary", version, f"{name}-core {same}")
        yield Package(f"{name}-cuda13", version, f"{name}-core {same}")
        yield Package(f"{name}-proprietary-cuda13", version, f"{name}-proprietary {same}")
    slow = "while [ -e /var/lib/slow ]; do sleep 0.1; done"
    toolkit = {"usr/local/cuda-13.0/lib64/libcudart.so.13": "large\n" * 100_000}
    yield Package("cuda-toolkit-13-0", "13.0.2-1", files=toolkit, runs=slow)


def containers():
    """The container toolkit, which has a repository of its own."""
    for version in TOOLKITS:
        base, tools, library = "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"
        yield Package("nvidia-container-toolkit", version, f"{base} (= {version}), {tools} (= {version})")
        unit = {"usr/lib/systemd/system/nvidia-cdi-refresh.path": PATH}
        yield Package(base, version, files={**daemon("nvidia-ctk"), **unit})
        yield Package(tools, version, f"{library} (= {version})")
        yield Package(library, version)


def main(folder):
    """Build them all."""
    packages = [
        *(replace(package, place=DEBIAN) for package in debian()),
        *cuda(),
        *(package for version in DRIVERS for package in driver(version)),
        *(replace(package, place=CONTAINERS) for package in containers()),
    ]
    for place in PLACES:
        (folder / place).mkdir(parents=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda package: package.build(folder), packages))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
