"""The gain from reductions in switches: NVLink SHARP (NVLS) within each node, SHARP (CollNet) between nodes; pure.

NCCL's lines show whether a feature is active. Within a node, NVLS is the algorithm of that name. Between nodes, the
switches reduce with the algorithms COLLNET_DIRECT and COLLNET_CHAIN, and with NVLS, which NCCL allows on several nodes
only with CollNet (NVIDIA/nccl, src/enqueue.cc: updateCollCostTable). NVLS_TREE does not use the switches between nodes.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from gpuops.bandwidth import ExpectedBandwidth
from gpuops.collective.engines import Curve
from gpuops.collective.measurement import excluded_document, nodes_by_setting
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.probes.nvidia.nccl_log import NcclLog
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.secret import redact

Feature = Literal["nvls", "sharp"]
Status = Literal["faster", "not-faster", "inactive", "unsupported", "fails", "unknown"]
"""``faster``: each result with it is above each one without. ``inactive``: NCCL did not use it. ``unsupported``: the
GPUs do not have it. ``fails``: two runs fail with it, and none without it."""
SETTINGS: Mapping[Feature, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "nvls": ({"NCCL_NVLS_ENABLE": "2"}, {"NCCL_NVLS_ENABLE": "0"}),
    "sharp": ({"NCCL_COLLNET_ENABLE": "1"}, {"NCCL_COLLNET_ENABLE": "0"}),
}
"""NCCL's variables for on and off. NVLS 2 is NCCL's default: use it if the GPUs have it."""
RUNS = 3
"""Runs of each setting, in turn. If the feature changed nothing, all of three would exceed all of the other three in 1
of 20 comparisons (of the 20 orders of six results, one)."""
FAILURES = 2
"""A setting that failed so often does not run again."""
_NAMES: Mapping[Feature, str] = {"nvls": "NVLink SHARP", "sharp": "SHARP"}
_ALGORITHMS: Mapping[Feature, tuple[str, ...]] = {"nvls": ("NVLS/",), "sharp": ("COLLNET", "NVLS/")}


@dataclass(frozen=True)
class Repeats:
    """All results with one setting (bus bandwidth), and NCCL's algorithm; empty if its log does not name it."""

    gb_per_s: tuple[float, ...]
    algorithm: str

    @property
    def median(self) -> float:
        """The median of the results."""
        return statistics.median(self.gb_per_s)

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"gb_per_s": list(self.gb_per_s), "median_gb_per_s": self.median, "algorithm": self.algorithm}


@dataclass(frozen=True)
class Comparison:
    """One feature on ``nodes``: one node for NVLink SHARP, all nodes for SHARP.

    ``on`` and ``off`` are None if nothing was measured. ``expected`` are the values with and without it, each None if
    it is unknown. ``is_fault``: this machine or fabric should have the feature. ``why`` explains a status other than
    ``faster``, and ``do`` is what to do about it; both may be empty.
    """

    feature: Feature
    nodes: tuple[str, ...]
    status: Status
    on: Repeats | None
    off: Repeats | None
    expected: tuple[ExpectedBandwidth | None, ExpectedBandwidth | None] = (None, None)
    is_fault: bool = False
    why: str = ""
    do: str = ""

    @property
    def ratio(self) -> float | None:
        """The median with the feature over that without."""
        return self.on.median / self.off.median if self.on and self.off else None

    @property
    def expected_ratio(self) -> float | None:
        """The expected ratio; None if one of the two values is unknown."""
        on, off = self.expected
        return on.gb_per_s / off.gb_per_s if on and off else None

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON, with secrets masked."""
        on, off = self.expected
        return {
            "nodes": list(self.nodes),
            "status": self.status,
            "is_fault": self.is_fault,
            "on": self.on.to_document() if self.on else None,
            "off": self.off.to_document() if self.off else None,
            "ratio": self.ratio,
            "expected_on_gb_per_s": on.gb_per_s if on else None,
            "expected_off_gb_per_s": off.gb_per_s if off else None,
            "expected_ratio": self.expected_ratio,
            "why": redact(self.why),
            "do": redact(self.do),
        }


@dataclass(frozen=True)
class SharpComparison(Result):
    """The comparisons: NVLink SHARP for each node with several GPUs, then SHARP between all nodes if there are several.

    The other fields are those of `gpuops.collective.measurement.Measurement`.
    """

    SCHEMA: ClassVar[str] = "gpuops.sharp/1"

    comparisons: Sequence[Comparison]
    engine: str
    engine_why: str = ""
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failures: Sequence[NetworkFailure] = ()
    interrupted: bool = False
    seconds: float = 0.0

    def of(self, feature: Feature) -> list[Comparison]:
        """Return the comparisons of one feature."""
        return [each for each in self.comparisons if each.feature == feature]

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` if a feature that should be there fails or does not help, ``incomplete`` if unknown."""
        if self.interrupted:
            return "interrupted"
        if self.failures or any(each.is_fault for each in self.comparisons):
            return "failed"
        known = self.comparisons and all(each.status not in _WITHOUT_RESULT for each in self.comparisons)
        return "ok" if known and not self.excluded else "incomplete"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON, with secrets masked."""
        settings = nodes_by_setting(self.settings)
        return {
            "schema": self.SCHEMA,
            "engine": {"name": self.engine, "why": redact(self.engine_why)},
            "settings": [{"setting": redact(words), "nodes": nodes} for words, nodes in settings.items()],
            "nvls": [each.to_document() for each in self.of("nvls")],
            "sharp": [each.to_document() for each in self.of("sharp")],
            "excluded": excluded_document(self.excluded),
            "interrupted": self.interrupted,
        }


_WITHOUT_RESULT: frozenset[Status] = frozenset({"unknown", "fails"})


def compare(
    feature: Feature,
    on: Sequence[Curve],
    off: Sequence[Curve],
    expected: tuple[ExpectedBandwidth | None, ExpectedBandwidth | None] = (None, None),
    *,
    has_sharp: bool = False,
) -> Comparison:
    """Return the comparison of the runs of one group, at least one with each setting.

    ``has_sharp``: the inventory or the profile states that the fabric has SHARP, so it should be active. NVLink SHARP
    should be active and faster if published values of the machine say so.
    """
    nodes = on[0].sweep.group.nodes
    gains = bool(expected[0] and expected[1] and expected[0].gb_per_s > expected[1].gb_per_s)
    status, why = _status(feature, on, off, is_expected=gains)
    if feature == "nvls":
        published = gains and expected[0] is not None and expected[0].may_fail
        is_fault = status == "fails" or (published and status in {"not-faster", "inactive"})
    else:
        is_fault = has_sharp and status in {"fails", "inactive"}
    do = _remedy(feature, status, on[-1].log) if is_fault or feature == "sharp" else ""
    return Comparison(feature, nodes, status, _runs(on), _runs(off), expected, is_fault, why, do)


def _remedy(feature: Feature, status: Status, log: NcclLog) -> str:
    if status == "inactive" and log.has_collnet:
        return ""  # nothing is missing: NCCL estimates that it would be slower
    if status == "inactive" and log.multicast is False and feature == "nvls":
        return _DO[feature]["unsupported"]
    return _DO[feature].get(status, "")


_DO: Mapping[Feature, Mapping[Status, str]] = {
    "nvls": {
        "fails": "drain the node and restart nvidia-fabricmanager; until then run jobs with NCCL_NVLS_ENABLE=0",
        "inactive": "unset NCCL_ALGO and NCCL_PROTO in nccl.conf and in the environment",
        "unsupported": "check that nvidia-smi -q reports the fabric state Completed and that the driver is not older "
        "than 530 (CUDA 12.1); drain the node and restart nvidia-fabricmanager",
        "not-faster": "drain the node, restart nvidia-fabricmanager to reset the multicast of its NVSwitches, and "
        "compare again",
    },
    "sharp": {
        "fails": "unset NCCL_COLLNET_ENABLE for jobs, and read the log of the aggregation manager (sharp_am)",
        "inactive": "if the fabric has SHARP: put the libnccl-net.so of HPC-X (nccl-rdma-sharp-plugins) into the "
        "LD_LIBRARY_PATH of all ranks, and check that sharp_am runs beside the subnet manager",
        "not-faster": "leave NCCL_COLLNET_ENABLE unset, unless the aggregation manager (sharp_am) had no resources "
        "left for this job",
    },
}


def _runs(curves: Sequence[Curve]) -> Repeats | None:
    points = [curve.points[-1] for curve in curves if curve.points and not curve.trouble]
    return Repeats(tuple(point.gb_per_s for point in points), points[-1].algorithm) if points else None


def _status(feature: Feature, on: Sequence[Curve], off: Sequence[Curve], *, is_expected: bool) -> tuple[Status, str]:
    name, with_it, without = _NAMES[feature], _runs(on), _runs(off)
    failed = [curve for curve in (*on, *off) if curve.trouble]
    if failed or not (with_it and without):
        return _failed(name, failed, only_with_it=without is not None and all(curve in on for curve in failed))
    if not with_it.algorithm:
        return "unknown", f"NCCL's log does not name its algorithm, so it is unknown whether it used {name}"
    if without.algorithm.startswith(_ALGORITHMS[feature]):
        return "unknown", f"NCCL used {without.algorithm} although {name} was off: the setting did not reach the ranks"
    if not with_it.algorithm.startswith(_ALGORITHMS[feature]):
        return _inactive(feature, with_it.algorithm, on[-1].log, is_expected=is_expected)
    if min(with_it.gb_per_s) > max(without.gb_per_s):
        return "faster", ""
    return "not-faster", f"NCCL used {with_it.algorithm}, but not every run was faster than every run without it"


def _failed(name: str, failed: Sequence[Curve], *, only_with_it: bool) -> tuple[Status, str]:
    words = f"{failed[0].trouble}: {failed[0].detail}".rstrip(": ") if failed else "no result"
    if only_with_it and len(failed) >= FAILURES:
        return "fails", f"with {name}: {words}; without it, no run failed"
    return "unknown", f"a run failed: {words}"


def _inactive(feature: Feature, algorithm: str, log: NcclLog, *, is_expected: bool) -> tuple[Status, str]:
    chose = f"NCCL chose {algorithm}"
    if feature == "nvls":
        if log.multicast is False:
            why = f"{chose}: NVLS multicast support is not available"
            return ("inactive", why) if is_expected else ("unsupported", "the GPUs have no NVLink SHARP")
        return "inactive", chose if log.multicast else f"{chose}, and did not log whether the GPUs have multicast"
    if log.sharp_error:
        return "inactive", f"{chose}; it warned: {log.sharp_error}"
    connected = "although CollNet is connected" if log.has_collnet else "and connected no CollNet"
    return "inactive", f"{chose}, {connected}"
