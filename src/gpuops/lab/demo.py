"""The demonstration: a lab with injected faults, and a test whether two reports name exactly those."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuops.interpreter import calling_main
from gpuops.lab.places import Places

MACHINE = "hgx-h100"
NODES = 8


@dataclass(frozen=True)
class Planted:
    """A fault, and the finding that it must cause: the check, the faulty part, and a word of the fix.

    If ``check`` is None, the host must be excluded, and ``remedy`` is the kind of exclusion.
    """

    fault: str
    check: str | None
    part: str
    remedy: str

    @property
    def host(self) -> str:
        """The host that has the fault."""
        return self.fault.partition(":")[0]


PLANTED = (
    Planted("gpu02:gpu5:lost", "gpu-lost", "gpu5", "power-cycle"),
    Planted("gpu04:gpu1:remap-pending", "row-remap-pending", "gpu1", "reset GPU 1"),
    Planted("gpu05:mlx5_3:port-down", "ib-ports", "mlx5_3", "optic"),
    Planted("gpu07:host:driver-skew=580.95.05", "driver-agrees", "driver", "reboot"),
    Planted("gpu08:host:refuse", None, "node", "unreachable"),
)

SLOW = "gpu06:mlx5_6:slow-duplex=35"
"""A fault that no other test shows: the port reports its full rate, and ib_write_bw sends in one direction only."""


def validate_words(places: Places) -> list[str]:
    """Return the command that validates the hosts, as a user types it, with the JSON in a file."""
    return ["gpuops", "validate", "-i", str(places.inventory), "-o", str(places.report)]


def all_reduce_words(places: Places) -> list[str]:
    """Return the command that measures the hosts, as a user types it, with its results saved."""
    return ["gpuops", "allreduce", "-i", str(places.inventory), "--save", str(places.figures)]


def run(words: Sequence[str]) -> int:
    """Run a command of gpuops, whether or not it is on PATH; return its exit code."""
    return subprocess.run([*calling_main("gpuops.__main__"), *words[1:]], check=False).returncode


def blamed_otherwise(exit_code: int, folder: Path) -> list[str]:
    """Return how the blame of the all-reduce differs from `SLOW`, by judging the saved results again."""
    words = [*calling_main("gpuops.__main__"), "allreduce", "--from", str(folder), "--json"]
    again = subprocess.run(words, check=False, stdout=subprocess.PIPE)
    parts = [blamed["part"] for blamed in json.loads(again.stdout)["accused"]] if again.stdout else []
    wrong = [] if exit_code == again.returncode == 1 else [f"allreduce ended with {exit_code}, not with 1"]
    planted = SLOW.rpartition(":")[0]
    return wrong + (
        [] if parts == [planted] else [f"{planted} was injected, but {', '.join(parts) or 'no part'} was blamed"]
    )


def differences(exit_code: int, report: Path) -> list[str]:
    """Return how the report differs from `PLANTED`; an empty list if it names exactly the injected faults."""
    wrong = [] if exit_code == 1 else [f"validate ended with {exit_code} instead of 1"]
    document = json.loads(report.read_text("utf-8")) if report.exists() else {"hosts": {}, "findings": []}
    fixes = {(f["host"], f["check"], f["part"]): str(f["fix"]) for f in document["findings"]}
    for planted in PLANTED:
        wrong += _missed(planted, fixes, document["hosts"].get(planted.host, {}))
    expected = {(p.host, p.check, p.part) for p in PLANTED}
    return wrong + [f"{' '.join(map(str, key))} was not injected" for key in fixes if key not in expected]


def _missed(planted: Planted, fixes: Mapping[tuple[str, str | None, str], str], host: Mapping[str, Any]) -> list[str]:
    if planted.check is None:
        kind = (host.get("excluded") or {}).get("kind")
        return [] if kind == planted.remedy else [f"{planted.fault}: {planted.host} should be {planted.remedy}"]
    fix = fixes.get((planted.host, planted.check, planted.part))
    if fix is None:
        return [f"{planted.fault} was not found by {planted.check}"]
    return [] if planted.remedy in fix else [f"{planted.fault}: the fix does not contain {planted.remedy}: {fix}"]
