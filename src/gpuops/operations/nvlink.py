"""Comparison of the same GPUs with and without NVLink, in an all-reduce and in training."""

from __future__ import annotations

from dataclasses import replace

from gpuops.collective.measurement import Measurement
from gpuops.collective.measuring import idle_nodes
from gpuops.collective.nvlink import Model, NvlinkComparison, RowName, Training, gains_of, next_round, train
from gpuops.collective.request import NVLINK_ENGINES, MeasureRequest
from gpuops.operations.health import check_profiles, profiles_of
from gpuops.operations.measure import check, context_of, measure_known, pool_of, probes
from gpuops.probing import Unknown
from gpuops.requests import NvlinkRequest
from gpuops.workspace import Workspace

Rows = dict[str, dict[RowName, Training | Unknown]]


def compare(work: Workspace, request: NvlinkRequest) -> NvlinkComparison:
    """Measure the GPUs of every idle node with and without NVLink, and train on them if requested."""
    measuring = MeasureRequest(
        request.engine, ("node",), gib=request.gib, force_busy=tuple(request.force_busy), libnccl=request.libnccl
    )
    check_profiles(work.hosts, work.catalogue)
    check(work, measuring.force_busy)
    gathered = work.nodes.gather(probes(work))
    gathered.raise_if_interrupted()
    measurement = measure_known(work, measuring, gathered.values, plan=next_round, engines=NVLINK_ENGINES)
    measurement = replace(measurement, excluded={**gathered.excluded, **measurement.excluded})
    rows = _trained(work, request, measuring, measurement) if request.train and not measurement.interrupted else {}
    return NvlinkComparison(measurement, gains_of(measurement.evidence), rows)


def _trained(work: Workspace, request: NvlinkRequest, measuring: MeasureRequest, measurement: Measurement) -> Rows:
    """Train in each mode on the measured nodes that are still idle."""
    hosts = [host for host in work.hosts if host.name in measurement.evidence.fabric.nodes]
    profiles, model = profiles_of(hosts, measurement.facts, work.catalogue), Model(request.steps, request.batch)
    work.nodes.activity("training")
    with (
        pool_of(work, hosts) as pool,
        context_of(work) as context,
        idle_nodes(pool, profiles, measuring, context) as monitor,
    ):
        return train(pool, monitor, str(request.train), model, request.row_timeout)
