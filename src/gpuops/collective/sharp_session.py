"""Measurement of NVLink SHARP within each node and of SHARP between all nodes, with and without it in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuops.bandwidth import ExpectedBandwidth, min_payload_bytes
from gpuops.collective.engines import Curve, Sweep
from gpuops.collective.expectations import Expectations
from gpuops.collective.measuring import MeasureContext, ReadyEngine, ready_engine
from gpuops.collective.pool import Pool
from gpuops.collective.request import NVLINK_ENGINES, MeasureRequest, SharpRequest
from gpuops.collective.sharp import FAILURES, RUNS, SETTINGS, Comparison, Feature, SharpComparison, compare
from gpuops.collective.sweep_session import SweepPlan, SweepSession
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup
from gpuops.profile import Expected, Profile

_SHARP = Expected(1, "assumed for the comparison", "guess")


def measure(
    pool: Pool, fabric: Fabric, profiles: Mapping[str, Profile], request: SharpRequest, context: MeasureContext
) -> SharpComparison:
    """Compare on the nodes of ``pool`` that are proved idle; if none is left, there is no comparison."""
    began = time.monotonic()
    words = MeasureRequest(request.engine, gib=request.gib, force_busy=request.force_busy, libnccl=request.libnccl)
    nothing = SharpComparison((), "none", "no node is left to measure")
    with ready_engine(pool, fabric, profiles, words, context, engines=NVLINK_ENGINES) as ready:
        if ready is None:
            return replace(nothing, excluded=dict(pool.excluded), seconds=time.monotonic() - began)
        session = SweepSession(list(ready.fabric.nodes))
        plan = _plan(ready.fabric, words.size_bytes)
        session.run(ready.engine, plan, ready.monitor, lambda sweeps: context.activity(_activity(sweeps)))
        return replace(
            nothing,
            comparisons=list(_comparisons(ready, session)),
            engine=ready.engine.name,
            engine_why=ready.engine.why,
            excluded={**pool.excluded, **session.excluded},
            settings={node: words for node, words in ready.engine.settings.items() if node in session.nodes},
            failures=ready.failures,
            interrupted=session.interrupted,
            seconds=time.monotonic() - began,
        )


def _activity(sweeps: Sequence[Sweep]) -> str:
    return " and ".join(sorted({f"{k}={v}" for sweep in sweeps for k, v in sweep.environment.items()}))


def _plan(fabric: Fabric, size_bytes: int | None) -> SweepPlan:
    """Return the plan: each node with several GPUs by itself, then all nodes together, with each setting in turn."""

    def plan(nodes: Sequence[str], curves: Sequence[Curve]) -> Sequence[Sweep]:
        alone = [RankGroup((node,)) for node in nodes if len(fabric.nodes[node].gpus) > 1]
        together = [RankGroup(tuple(nodes))] if len(nodes) > 1 and not _is_ethernet(fabric, nodes) else []
        within = [sweep for group in alone for sweep in _next("nvls", group, fabric, size_bytes, curves)]
        return within or [sweep for group in together for sweep in _next("sharp", group, fabric, size_bytes, curves)]

    return plan


def _next(
    feature: Feature, group: RankGroup, fabric: Fabric, size_bytes: int | None, curves: Sequence[Curve]
) -> Iterator[Sweep]:
    """Yield the next run of ``group``: with the setting that ran less often.

    Alternation keeps a drift of the machine from looking like a difference between the settings.
    """
    own = {index: _of(group, setting, curves) for index, setting in enumerate(SETTINGS[feature])}
    counts = {
        index: len(done)
        for index, done in own.items()
        if len(done) < RUNS and sum(bool(curve.trouble) for curve in done) < FAILURES
    }
    if counts:
        index = min(counts, key=lambda each: (counts[each], each))
        ranks = sum(len(fabric.nodes[node].gpus) for node in group.nodes)
        yield Sweep(group, (size_bytes or min_payload_bytes(ranks),), SETTINGS[feature][index])


def _of(group: RankGroup, setting: Mapping[str, str], curves: Sequence[Curve]) -> list[Curve]:
    return [curve for curve in curves if curve.sweep.group == group and curve.sweep.environment == setting]


def _comparisons(ready: ReadyEngine, session: SweepSession) -> Iterator[Comparison]:
    """Yield the comparisons of the groups that ran with both settings."""
    groups = dict.fromkeys(curve.sweep.group for curve in session.curves)
    for group in groups:
        feature: Feature = "nvls" if len(group.nodes) == 1 else "sharp"
        on, off = (_of(group, setting, session.curves) for setting in SETTINGS[feature])
        if on and off:
            has_sharp = all(ready.expectations.profiles[node].get("allreduce.sharp") for node in group.nodes)
            yield compare(feature, on, off, _expected(feature, group, ready.expectations), has_sharp=has_sharp)
    if len(session.nodes) > 1 and _is_ethernet(ready.fabric, session.nodes):
        yield Comparison("sharp", tuple(session.nodes), "unsupported", None, None, why="SHARP needs InfiniBand")


def _is_ethernet(fabric: Fabric, nodes: Sequence[str]) -> bool:
    """Return True if no port of ``nodes`` is known to be anything but Ethernet."""
    return {nic.link_layer for node in nodes for nic in fabric.nodes[node].nics} == {"Ethernet"}


def _expected(
    feature: Feature, group: RankGroup, expectations: Expectations
) -> tuple[ExpectedBandwidth | None, ExpectedBandwidth | None]:
    """Return the bandwidth to expect with and without the feature.

    SHARP is a guess unless the inventory or the profile says that the fabric has it (``allreduce.sharp``).
    """
    if feature == "nvls":
        return expectations.of(group), expectations.of(replace(group, variant="ring"))
    return _with_sharp(expectations, _SHARP).of(group), _with_sharp(expectations, None).of(group)


def _with_sharp(expectations: Expectations, entry: Expected | None) -> Expectations:
    """Return the expectations of a fabric with SHARP, keeping a profile's own entry, or without it."""
    profiles = {}
    for name, profile in expectations.profiles.items():
        others = {key: value for key, value in profile.values.items() if key != "allreduce.sharp"}
        own = {} if entry is None else {"allreduce.sharp": profile.values.get("allreduce.sharp", entry)}
        profiles[name] = replace(profile, values={**others, **own})
    return replace(expectations, profiles=profiles)
