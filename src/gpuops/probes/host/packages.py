"""The installed packages of the GPU stack, from dpkg or rpm."""

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
    """Versions by package name; what is not installed is left out."""
    *rows, end = text.splitlines() or [""]
    found = [_ROW.fullmatch(row) for row in rows]
    if end != _END or None in found:
        return Unknown(f"packages: expected lines of status, name and version, found {text[-80:]!r}")
    return {row["name"]: row["version"] for row in found if row and row["status"] == "installed"}


packages: Probe[dict[str, str]] = Probe(
    "packages", Command(("sh", "-c", _SCRIPT), timeout_seconds=20), lambda answer: parse_packages(answer.out)
)
"""The packages of driver, CUDA, NCCL, DCGM and the RDMA stack."""
