"""Memory errors that the kernel counted since boot, per memory controller and DIMM (EDAC).

``…/edac/mc/mc0/dimm0/dimm_label`` of ``CPU_SrcID#0_MC#0_Chan#0_DIMM#0`` names the DIMM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuops.probes.numbers import integer
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_ROOT = "/sys/devices/system/edac/mc"
_COUNTS = ("ce_count", "ue_count")
_LEAVES = ("dimm_label", "dimm_ce_count", "dimm_ue_count", "size")
_DIMM = re.compile(rf"({_ROOT}/(mc\d{{1,3}})/(?:dimm|rank)\d{{1,3}})/size", re.ASCII)
_CONTROLLER = re.compile(rf"{_ROOT}/(mc\d{{1,3}})/ue_count", re.ASCII)


@dataclass(frozen=True, slots=True)
class Dimm:
    """One DIMM of a memory ``controller``; a count is None if the driver does not report it."""

    controller: str
    label: str
    corrected: int | None
    uncorrected: int | None
    size_mib: int | None = None


@dataclass(frozen=True)
class Edac:
    """All DIMMs, and the counts (corrected, uncorrected) of each controller, of which some belong to no DIMM."""

    dimms: tuple[Dimm, ...] = ()
    controllers: Mapping[str, tuple[int | None, int | None]] | None = None


def parse_edac(text: str) -> Edac | Unknown:
    """Return the counts in the files of `edac`; without controllers if the kernel has no driver for them."""
    files = {path: content.strip() for path, content in read_files(text).items()}
    if "/sys/devices/system" not in files:
        return Unknown("/sys/devices/system cannot be read")
    controllers = {
        match[1]: (integer(files.get(f"{_ROOT}/{match[1]}/ce_count")), integer(files[path]))
        for path in files
        if (match := _CONTROLLER.fullmatch(path))
    }
    return Edac(tuple(_dimm(match, files) for match in map(_DIMM.fullmatch, files) if match), controllers)


def _dimm(match: re.Match[str], files: Mapping[str, str]) -> Dimm:
    label, corrected, uncorrected, size = (files.get(f"{match[1]}/{leaf}") for leaf in _LEAVES)
    name = label or "/".join(match[1].split("/")[-2:])
    return Dimm(match[2], name, integer(corrected), integer(uncorrected), integer(size))


edac: Probe[Edac] = Probe(
    "edac",
    Files(
        (
            "/sys/devices/system",  # proves that we could look where nothing else is there
            *(f"{_ROOT}/mc*/{leaf}" for leaf in _COUNTS),
            *(f"{_ROOT}/mc*/{kind}*/{leaf}" for kind in ("dimm", "rank") for leaf in _LEAVES),
        )
    ),
    lambda answer: parse_edac(answer.out),
)
"""Counts of memory errors."""
