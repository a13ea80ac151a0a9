"""NVIDIA's own diagnosis, level 3, passes on every GPU."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, DiagResult, dcgm_diag

Severity = Literal["warn", "fail", "reset", "isolate"]
_NEEDED = frozenset({"pcie", "memory", "gpu_memory", "diagnostic", "targeted_stress"})
"""Tests that every data-centre GPU can run; others depend on the model, and on what is installed."""
_SOFTWARE = frozenset(
    "software denylist blacklist nvml_library cuda_main_library permissions_and_os_blocks persistence_mode "
    "environment_variables graphics_processes".split()
)
_LEAST_SECONDS = 1.0
_SECONDS = re.compile(r"violations totaling (\d+(?:\.\d+)?) second", re.IGNORECASE)
_SEVERITIES: Mapping[int, Severity] = {1: "warn", 2: "isolate", 3: "fail", 4: "fail", 5: "fail", 6: "reset"}
_ORDER: Sequence[Severity] = ("warn", "fail", "reset", "isolate")


@check(
    needs=dcgm_diag,
    severity="isolate",
    tags=("burnin", "gpu", "memory", "pcie"),
    catches="a GPU whose memory, PCIe, NVLink or power fails only under NVIDIA's own load",
    fix="follow the warning; return a GPU that fails again",
)
def dcgm_diagnosis(diagnosis: DcgmDiagnosis, _profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """A test that warns is a warning. The check is skipped if DCGM is not installed.

    DCGM's own severity decides how severe a failure is; a failed software test fails the node. Two failures only warn:
    violations that total less than a second (our own figure), and a bandwidth measured under the load of the previous
    test. A test that passes with a warning tested nothing, and a skipped test of memory, PCIe or stress did not run;
    both are unknown. Source: NVIDIA DCGM documentation, Diagnostics (levels and tests), and its dcgm_errors.h
    (severities); NVIDIA/DCGM, issues 55, 242, 272 and 284 (the exceptions).
    """
    if not diagnosis.installed:
        yield NotApplicable("dcgmi is not installed")
    for result in diagnosis.results:
        where = "" if result.gpu is None else f" on GPU {result.gpu}"
        words = "; ".join(result.warnings)
        if result.status in ("fail", "warn"):
            yield _finding(result, words)
        elif result.status == "pass" and words:
            yield Unknown(f"dcgmi diag could not run {result.test}{where}: {words}")
        elif result.status in ("skip", "not_run") and _name(result) in _NEEDED:
            yield Unknown(f"dcgmi diag skipped {result.test}{where}{': ' if words else ''}{words}")


def _name(result: DiagResult) -> str:
    return result.test.strip().lower().replace(" ", "_")


def _finding(result: DiagResult, words: str) -> Finding:
    return Finding(
        f"dcgmi diag: {result.test} {result.status}s{': ' if words else ''}{words}",
        expected="pass",
        found=result.status,
        part="node" if result.gpu is None else f"gpu{result.gpu}",
        severity="warn" if result.status == "warn" or _is_excused(result) else _severity(result),
    )


def _is_excused(result: DiagResult) -> bool:
    """Return True if each warning is a violation that rounds to nothing, or the load of an earlier test."""
    return bool(result.warnings) and all("MCUTIL" in text or _is_brief(text) for text in result.warnings)


def _is_brief(text: str) -> bool:
    seconds = _SECONDS.search(text)
    return seconds is not None and float(seconds[1]) < _LEAST_SECONDS


def _severity(result: DiagResult) -> Severity | None:
    known = [_SEVERITIES[number] for number in result.severities if number in _SEVERITIES]
    if known:
        return max(known, key=_ORDER.index)
    return "fail" if _name(result) in _SOFTWARE else None
