"""One of NVIDIA's package repositories, with its key, for the node's distribution and processor."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Command, Failed, Plan, Unknown, task, use
from gpuops.probes.host.system import System, system


@dataclass(frozen=True)
class _Repo:
    """The location of a repository: ``{distro}`` and ``{arch}`` in ``place`` are in NVIDIA's spelling."""

    url: str
    place: str
    suite: str
    keys: tuple[str, str]
    fingerprints: tuple[str, str] = ("", "")
    replaces: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    signed: Literal["packages", "list"] = "packages"


_REPOS = {
    "cuda": _Repo(
        url="https://developer.download.nvidia.com/compute/cuda/repos",
        place="{distro}/{sbsa}",
        suite="/",
        keys=("{distro}/{sbsa}/3bf863cc.pub", "{distro}/{sbsa}/D42D0685.pub"),
        fingerprints=("EB693B3035CD5710E231E123A4B469963BF863CC", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
        replaces=(
            "cuda-ubuntu*-{sbsa}",
            "cuda-debian*-{sbsa}",
            "cuda-rhel8",
            "cuda-rhel9",
        ),  # also those of an older release
        exclude=("mft*", "kernel-mft*"),  # these conflict with DOCA's (Azure/azhpc-images)
    ),
    "container-toolkit": _Repo(
        url="https://nvidia.github.io/libnvidia-container",
        place="stable/{kind}/{debian}",
        suite="/",
        keys=("gpgkey", "gpgkey"),
        fingerprints=("C95B321B61E88C1809C4F759DDCAE044F796ECB0",) * 2,
        replaces=("nvidia-container-toolkit", "libnvidia-container", "nvidia-docker", "nvidia-container-runtime"),
        signed="list",  # its RPM packages are not signed, as its own .repo file states
    ),
    "doca": _Repo(
        url="https://linux.mellanox.com/public/repo/doca",
        place="{version}/{dotted}/{arm64}",
        suite="./",
        keys=("GPG-KEY-Mellanox.pub", "GPG-KEY-Mellanox.pub"),
    ),
}
_DEBIAN_WORDS = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Params:
    """``name`` of the repository; DOCA has one for each ``version``.

    ``url`` is a mirror with NVIDIA's layout. ``fingerprint`` is the fingerprint of its key. It is built in for CUDA and
    the container toolkit; look it up for DOCA. ``state`` is present, absent or offered, which only fetches the key and
    changes nothing.
    """

    name: Literal["cuda", "container-toolkit", "doca"]
    url: str = ""
    version: str = ""
    fingerprint: str = ""
    state: Literal["present", "absent", "offered"] = "present"


@task
def nvidia_repo(params: Params) -> Plan:
    """The repository is configured, on Ubuntu 22.04 and 24.04, Debian 12, RHEL and Rocky 8 and 9.

    RHEL and Rocky were not tested on real machines. The key is verified by its fingerprint. Older sources of the same
    repository are removed, because apt refuses two that name different keys.
    """
    machine, processor = yield (system, Command(("uname", "-m")))
    if params.name == "doca" and params.state != "absent" and not (params.version and params.fingerprint):
        yield Failed("set a version (3.2.1) and the fingerprint of the key for DOCA's repository")
    if isinstance(machine, Unknown):
        yield Failed(f"cannot determine the distribution: {machine.why}")
    words = _words(machine, processor.out.strip(), params.version)
    if words is None:
        platform = f"{machine.os_id} {machine.os_version} on {processor.out.strip()}"
        yield Failed(
            f"NVIDIA's repositories are known for Ubuntu 22.04 and 24.04, Debian 12, RHEL 8 and 9, not {platform}"
        )
    else:
        yield from _repository(params, _REPOS[params.name], words)


def _words(machine: System, processor: str, version: str) -> dict[str, str] | None:
    """Return the node's words in the repositories' addresses; None if NVIDIA has none for such a node."""
    os_id, release = machine.os_id, machine.os_version
    red_hat = os_id in ("rhel", "rocky", "almalinux")
    supported = {"ubuntu": ("22.04", "24.04"), "debian": ("12",)}.get(os_id, ("8", "9") if red_hat else ())
    name, number = ("rhel", release.partition(".")[0]) if red_hat else (os_id, release)
    if number not in supported or processor not in _DEBIAN_WORDS:
        return None
    arm = processor == "aarch64"
    return {
        "kind": "rpm" if red_hat else "deb",
        "distro": name + number.replace(".", ""),
        "dotted": name + number,
        "sbsa": "sbsa" if arm else processor,
        "arm64": "arm64-sbsa" if arm else processor,
        "debian": processor if red_hat else _DEBIAN_WORDS[processor],
        "version": version,
    }


def _repository(params: Params, repo: _Repo, words: dict[str, str]) -> Plan:
    name = f"nvidia-{params.name}"
    red_hat = words["kind"] == "rpm"
    if params.state == "absent":
        yield from use("dnf_repo" if red_hat else "apt_repo", name=name, state="absent")
        return
    base = (params.url or repo.url).rstrip("/")
    place = f"{base}/{repo.place.format(**words)}"
    key = f"{'/etc/pki/rpm-gpg' if red_hat else '/etc/apt/keyrings'}/{name}.asc"
    yield from use(
        "repo_key",
        path=key,
        url=f"{base}/{repo.keys[red_hat].format(**words)}",
        fingerprints=[re.sub(r"\s", "", params.fingerprint) or repo.fingerprints[red_hat]],
        state=params.state,
    )
    if params.state == "offered":
        return
    replaces = [f"{one.format(**words)}.{'repo' if red_hat else 'list'}" for one in repo.replaces]
    if red_hat:
        more = {"exclude": repo.exclude, "signed": repo.signed, "replaces": replaces}
        yield from use("dnf_repo", name=name, baseurl=place, gpgkey=f"file://{key}", **more)
    else:
        yield from use("apt_repo", name=name, uris=[f"{place}/"], suites=[repo.suite], signed_by=key, replaces=replaces)
