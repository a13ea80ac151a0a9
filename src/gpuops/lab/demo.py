"""The demonstration: a lab with planted faults, and whether two reports name exactly those."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MACHINE = "hgx-h100"
NODES = 8


@dataclass(frozen=True)
class Planted:
    """A fault, and the finding that it must give: the check, the part at fault, and a word of the remedy.

    A ``check`` of None: the host must be excluded, and ``remedy`` is the kind of exclusion.
    """

    fault: str
    check: str | None
    part: str
    remedy: str

    @property
    def host(self) -> str:
        """The host that the fault is on."""
        return self.fault.partition(":")[0]


PLANTED = (
    Planted("gpu02:gpu5:lost", "gpu-lost", "gpu5", "power-cycle"),
    Planted("gpu04:gpu1:remap-pending", "row-remap-pending", "gpu1", "reset GPU 1"),
    Planted("gpu05:mlx5_3:port-down", "ib-ports", "mlx5_3", "optic"),
    Planted("gpu07:host:driver-skew=580.95.05", "driver-agrees", "driver", "reboot"),
    Planted("gpu08:host:refuse", None, "node", "unreachable"),
)

SLOW = "gpu06:mlx5_6:slow-duplex=35"
"""What neither a look at the node shows, for the port reports its full rate, nor ib_write_bw, whose data go one way."""


def validate(inventory: Path, report: Path) -> int:
    """Run ``gpuops validate`` as a user would: the table on the terminal, the JSON in ``report``. Its exit code."""
    return _gpuops("validate", "-i", inventory, "-o", report)


def all_reduce(inventory: Path, folder: Path) -> int:
    """Run ``gpuops allreduce`` as a user would, its figures kept in ``folder``. Its exit code."""
    return _gpuops("allreduce", "-i", inventory, "--save", folder)


def _gpuops(*words: str | Path) -> int:
    return subprocess.run([sys.executable, "-m", "gpuops", *map(str, words)], check=False).returncode


def blamed_otherwise(exit_code: int, folder: Path) -> list[str]:
    """What the all-reduce blamed otherwise than `SLOW`, as its saved figures are judged again."""
    words = [sys.executable, "-m", "gpuops", "allreduce", "--from", str(folder), "--json"]
    again = subprocess.run(words, check=False, stdout=subprocess.PIPE)
    parts = [blamed["part"] for blamed in json.loads(again.stdout)["accused"]] if again.stdout else []
    wrong = [] if exit_code == again.returncode == 1 else [f"allreduce ended with {exit_code}, not with 1"]
    planted = SLOW.rpartition(":")[0]
    return wrong + ([] if parts == [planted] else [f"{planted} was planted, and {', '.join(parts) or 'nobody'} blamed"])


def differences(exit_code: int, report: Path) -> list[str]:
    """What the run said otherwise than `PLANTED`; nothing where it named exactly the planted faults."""
    wrong = [] if exit_code == 1 else [f"validate ended with {exit_code} instead of 1"]
    document = json.loads(report.read_text("utf-8")) if report.exists() else {"hosts": {}, "findings": []}
    fixes = {(f["host"], f["check"], f["part"]): str(f["fix"]) for f in document["findings"]}
    for planted in PLANTED:
        wrong += _missed(planted, fixes, document["hosts"].get(planted.host, {}))
    expected = {(p.host, p.check, p.part) for p in PLANTED}
    return wrong + [f"{' '.join(map(str, key))} was not planted" for key in fixes if key not in expected]


def _missed(planted: Planted, fixes: Mapping[tuple[str, str | None, str], str], host: Mapping[str, Any]) -> list[str]:
    if planted.check is None:
        kind = (host.get("excluded") or {}).get("kind")
        return [] if kind == planted.remedy else [f"{planted.fault}: {planted.host} should be {planted.remedy}"]
    fix = fixes.get((planted.host, planted.check, planted.part))
    if fix is None:
        return [f"{planted.fault} was not found by {planted.check}"]
    return [] if planted.remedy in fix else [f"{planted.fault}: the fix does not say {planted.remedy}: {fix}"]
