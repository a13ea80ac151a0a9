"""What is installed and what runs: modinfo, nv-fabricmanager, systemctl, dpkg-query."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from gpuops.lab.model import Node, Service
from gpuops.lab.tools.answer import Answer


def modinfo(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """What ``modinfo nvidia`` prints: the module on disk, which need not be the one that runs."""
    del root
    names = [w for w in words if not w.startswith("-")]
    if names != ["nvidia"]:
        return Answer(err=f"modinfo: ERROR: Module {' '.join(names)} not found.\n", code=1)
    version, kernel = node.driver.userspace, node.system.kernel
    facts = (
        ("filename", f"/lib/modules/{kernel}/updates/dkms/nvidia.ko"),
        ("firmware", f"nvidia/{version}/gsp_ga10x.bin"),
        ("firmware", f"nvidia/{version}/gsp_tu10x.bin"),
        ("alias", "char-major-195-*"),
        ("version", version),
        ("supported", "external"),
        ("license", "Dual MIT/GPL" if node.driver.open else "NVIDIA"),
        ("srcversion", "1E2265D2AF1616FE7B5DC23"),
        ("alias", "pci:v000010DEd*sv*sd*bc06sc80i00*"),
        ("alias", "pci:v000010DEd*sv*sd*bc03sc02i00*"),
        ("alias", "pci:v000010DEd*sv*sd*bc03sc00i00*"),
        ("depends", "drm"),
        ("retpoline", "Y"),
        ("name", "nvidia"),
        ("vermagic", f"{kernel} SMP mod_unload modversions "),
        ("parm", "NVreg_EnableGpuFirmware:int"),
    )
    if "-F" in words or "--field" in words:
        return Answer(err="modinfo: ERROR: Module nvidia not found.\n", code=1)
    return Answer(out="".join(f"{name + ':':<16}{value}\n" for name, value in facts))


def nv_fabricmanager(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """What ``nv-fabricmanager --version`` prints."""
    del root
    version = node.driver.fabric_manager
    if version is None:
        return Answer(err="nv-fabricmanager: not found\n", code=127)
    if list(words) in (["--version"], ["-v"]):
        return Answer(out=f"Fabric Manager version is : {version}\n")
    return Answer(err="nv-fabricmanager: must be run by root\n", code=1)


_ABSENT = Service("inactive", "dead", "")


def systemctl(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """What ``systemctl show`` and ``is-active`` print; changing a unit is refused."""
    verbs = [w for w in words if not w.startswith("-")]
    verb, units = (verbs[0], verbs[1:]) if verbs else ("", [])
    if verb == "show":
        return Answer(out="\n".join(_shown(node, unit, _properties(words)) for unit in units))
    if verb == "is-active":
        states = [_service(node, unit).active for unit in units]
        return Answer(out="".join(f"{s}\n" for s in states), code=0 if "active" in states else 3)
    if verb == "is-enabled":
        states = [_service(node, unit).enabled or "not-found" for unit in units]
        return Answer(out="".join(f"{s}\n" for s in states), code=0 if "enabled" in states else 1)
    denied = "Access denied" if root else "Interactive authentication required."
    return Answer(err=f"Failed to {verb or 'list'} {' '.join(units)}: {denied}\n", code=1)


def _properties(words: Sequence[str]) -> list[str]:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name in ("-p", "--property"):
            return [p for p in (value or after).split(",") if p]
    return []


def _service(node: Node, unit: str) -> Service:
    return node.services.get(unit.removesuffix(".service"), _ABSENT)


def _shown(node: Node, unit: str, wanted: Sequence[str]) -> str:
    service = _service(node, unit)
    told = {
        "Id": unit if unit.endswith(".service") else f"{unit}.service",
        "LoadState": "not-found" if service is _ABSENT else "loaded",
        "ActiveState": service.active,
        "SubState": service.sub,
        "UnitFileState": service.enabled,
    }
    # systemd prints the properties in an order of its own, whatever order they were asked in
    return "".join(f"{name}={value}\n" for name, value in told.items() if not wanted or name in wanted)


def dpkg_query(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """What ``dpkg-query -W [-f FORMAT] [PATTERN …]`` prints; the packages of the driver follow its version."""
    del root
    if "-W" not in words and "--show" not in words:
        return Answer(err="dpkg-query: error: need an action option\n", code=2)
    shape, patterns, rest = "${binary:Package}\\t${Version}\\n", [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-f", "--showformat"):
            shape = rest.pop(0) if rest else shape
        elif word.startswith(("-f=", "-f$", "--showformat=")):
            shape = word.partition("=")[2] or word[2:]
        elif not word.startswith("-"):
            patterns.append(word)
    found = {n: v for n, v in packages(node).items() if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)}
    return Answer(out="".join(_shaped(shape, name, version) for name, version in found.items()), code=0 if found else 1)


def _shaped(shape: str, name: str, version: str) -> str:
    values = {
        "${binary:Package}": name,
        "${Package}": name,
        "${Version}": version,
        "${db:Status-Status}": "installed",
        "${db:Status-Abbrev}": "ii ",
        "${Status}": "install ok installed",
        "\\n": "\n",
        "\\t": "\t",
    }
    for token, value in values.items():
        shape = shape.replace(token, value)
    return shape


def packages(node: Node) -> dict[str, str]:
    """Installed packages of interest, by name."""
    driver = node.driver
    branch = driver.userspace.partition(".")[0]
    own = {f"nvidia-driver-{branch}-server": f"{driver.userspace}-0ubuntu1"}
    if driver.fabric_manager:
        own[f"nvidia-fabricmanager-{branch}"] = f"{driver.fabric_manager}-1"
    return dict(sorted({**node.packages, **own}.items()))
