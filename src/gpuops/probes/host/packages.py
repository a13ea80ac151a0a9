"""Installed packages of the GPU stack, from dpkg or rpm.

``installed libnccl2 2.28.9-1+cuda13.0`` is version 2.28.9-1+cuda13.0 of libnccl2.
"""

from __future__ import annotations

import re

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_END = "-- end"
_ROW = re.compile(r"(?P<status>[a-z-]+) (?P<name>\S+) (?P<version>\S*)")
_SCRIPT = rf"""
if command -v dpkg-query >/dev/null; then
  all=$(dpkg-query -W -f '${{db:Status-Status}} ${{Package}} ${{Version}}\n') || exit
else
  all=$(rpm -qa --qf 'installed %{{NAME}} %{{VERSION}}-%{{RELEASE}}\n') || exit 1
fi
printf '%s\n' "$all" | grep -E '^[^ ]+ [^ ]*(nvidia|cuda|nccl|dcgm|datacenter-gpu-manager|mlnx|ofed|doca)'
echo '{_END}'
"""


def parse_packages(text: str) -> dict[str, str] | Unknown:
    """Return the versions by package name; packages that are not installed are omitted."""
    *rows, end = text.splitlines() or [""]
    matches = [_ROW.fullmatch(row) for row in rows]
    if end != _END or None in matches:
        return Unknown(f"packages: expected lines of status, name and version, found {text[-80:]!r}")
    return {match["name"]: match["version"] for match in matches if match and match["status"] == "installed"}


packages: Probe[dict[str, str]] = Probe(
    "packages", Command(("sh", "-c", _SCRIPT), timeout_seconds=20), lambda answer: parse_packages(answer.out)
)
"""Packages of the driver, CUDA, NCCL, DCGM and the RDMA stack."""
