"""Results of ``dcgmi diag`` level 3: NVIDIA's own tests of memory, PCIe, NVLink and sustained load.

``{"name": "PCIe", "results": [{"entity_id": 3, "status": "Fail"}]}`` is a failed test ``PCIe`` on GPU 3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuops.probes.numbers import integer
from gpuops.probes.nvidia.dcgm_table import is_table, read_table, results_of
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # from 4.0 on, and before
_STATUSES = ("pass", "fail", "warn", "skip", "not_run")
_GIGAFLOPS = re.compile(r"GPU (\d{1,4}) calculated at approximately (\d+(?:\.\d+)?) gigaflops", re.ASCII)
"""What nvvs writes for each GPU after its multiplications; its source names no field for it."""


@dataclass(frozen=True)
class DiagResult:
    """Result of one test on one GPU (None: on the node). ``status`` is pass, fail, warn, skip or not_run.

    ``severities`` are DCGM's own words for its warnings (dcgmErrorSeverity), if it gives them. ``gigaflops`` is the
    rate that it measured, which it compares with nothing; DCGM 4 may leave it out on nodes with many GPUs.
    """

    test: str
    status: str
    gpu: int | None = None
    warnings: tuple[str, ...] = ()
    severities: tuple[int, ...] = ()
    gigaflops: float | None = None


@dataclass(frozen=True)
class DcgmDiagnosis:
    """All results in the order of the tests; ``installed`` is False if the node has no dcgmi."""

    results: tuple[DiagResult, ...] = ()
    version: str = ""
    installed: bool = True


def parse_diagnosis(answer: Completed) -> DcgmDiagnosis | Unknown:
    """Parse the JSON of DCGM 3 and 4, or the table that people save.

    If a test fails, dcgmi exits with 226 or 205, which is a valid answer. Source: NVIDIA DCGM 4,
    dcgmi/main_dcgmi.cpp (exit codes), common/DiagnosticResponse (JSON).
    """
    if answer.missing:
        return DcgmDiagnosis(installed=False)
    if is_table(answer.out):
        return _from_table(answer.out)
    start = answer.out.find("{")
    if start < 0 or answer.truncated:
        return Unknown(f"dcgmi diag exited with {answer.exit}: {answer.last_line() or 'no output'}")
    document = json.loads(answer.out[start:])
    root = next((document[name] for name in _ROOTS if name in document), None)
    if root is None:
        return Unknown(f"unexpected JSON from dcgmi, with the keys {', '.join(document)[:80]}")
    results = tuple(r for category in root["test_categories"] for t in category["tests"] for r in _results(t))
    return _checked(results, str(document.get("metadata", root).get("version", "")))


def _from_table(text: str) -> DcgmDiagnosis | Unknown:
    table = read_table(text)
    if table is None:
        return Unknown("the table of dcgmi diag is truncated, or has an unknown result")
    tests, version = table
    return _checked(tuple(DiagResult(*result) for result in results_of(tests)), version)


def _checked(results: tuple[DiagResult, ...], version: str) -> DcgmDiagnosis | Unknown:
    if not results:
        return Unknown("dcgmi ran no test")
    unknown_status = next((result.status for result in results if result.status not in _STATUSES), "")
    if unknown_status:
        return Unknown(f"unknown status in the answer of dcgmi: {unknown_status!r:.40}")
    return DcgmDiagnosis(results, version)


def _results(test: dict[str, Any]) -> Iterator[DiagResult]:
    """Yield one result for each GPU; DCGM 3 names several GPUs in one (``gpu_ids``), or none for the whole node."""
    for result in test["results"]:
        status = str(result["status"]).lower().replace(" ", "_")
        ids = result.get("entity_id", result.get("gpu_id", result.get("gpu_ids", "")))
        own, severities = tuple(_warnings(result.get("warnings"))), tuple(_severities(result.get("warnings")))
        rates = {int(gpu): float(rate) for gpu, rate in _GIGAFLOPS.findall(str(result.get("info", "")))}
        for gpu in map(integer, str(ids).split(",")):
            rate = None if gpu is None else rates.get(gpu)
            yield DiagResult(str(test["name"]), status, gpu, own, severities, rate)


def _warnings(warnings: Any) -> Iterator[str]:
    """Yield the warnings of a result: DCGM 3 has one string or a list of strings, DCGM 4 a list of maps."""
    for warning in [warnings] if isinstance(warnings, (str, dict)) else warnings or ():
        yield str(warning["warning"] if isinstance(warning, dict) else warning)


def _severities(warnings: Any) -> Iterator[int]:
    """Yield the severity of each warning that has one, which only DCGM 4 prints."""
    for warning in warnings if isinstance(warnings, list) else ():
        severity = warning.get("error_severity") if isinstance(warning, dict) else None
        if isinstance(severity, int):
            yield severity


dcgm_diag: Probe[DcgmDiagnosis] = Probe(
    "dcgm_diag",
    Command(("dcgmi", "diag", "-r", "3", "-j"), timeout_seconds=3600, lane="nvidia"),
    parse_diagnosis,
    accepts=None,
    cost="heavy",
)
"""Level 3 takes about half an hour on eight GPUs, and uses all of them."""
