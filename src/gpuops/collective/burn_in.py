"""Burn-in of nodes: NVIDIA's diagnosis, then repeated all-reduce within each node while its GPUs are sampled."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from gpuops.collective.growth import growths
from gpuops.collective.measurement import Measurement
from gpuops.collective.measuring import MeasureContext, idle_nodes, measure
from gpuops.collective.pool import Pool
from gpuops.collective.request import MeasureRequest
from gpuops.collective.session import Plan
from gpuops.errors import CancelledError
from gpuops.facts import Facts
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.probes.host.kernel_log import kernel_log
from gpuops.probes.network.error_counters import error_counters, saturated_counters
from gpuops.probes.nvidia.burn_in import (
    BurnIn,
    Sample,
    burn_in,
    excluded_answer,
    parse_samples,
    summarize,
    to_answer,
)
from gpuops.probes.nvidia.dcgm_diag import dcgm_diag
from gpuops.probes.nvidia.nvbandwidth import gpu_bandwidths
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.nvlink_errors import nvlink_errors
from gpuops.probing import Probe, Unknown
from gpuops.profile import Profile
from gpuops.reasons import Excluded
from gpuops.shell import Command, Completed

_LOADS: tuple[Probe[Any], ...] = (dcgm_diag, gpu_bandwidths)
"""NVIDIA's own programs, which are not installed everywhere; asked one after another before the all-reduces."""
_COUNTED: tuple[Probe[Any], ...] = (smi, kernel_log, error_counters, nvlink_errors)
_ASKED = (*_COUNTED, saturated_counters)
_ITERATIONS = 500
"""Measuring time of one round. The nccl engine times for at most about as long on a node with NVLink."""
_CHUNK_SECONDS = 10
_FIELDS = "index,temperature.gpu,power.draw,clocks.sm,clocks_{}_reasons.active"
# driver 535 renamed "throttle" to "event", and nvidia-smi refuses the whole query if one field is unknown
_SAMPLE = """\
for fields; do
    timeout "$0" nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits --loop=1
    [ $? = 124 ] && exit 0
done
exit 1
"""
_SAMPLING = Command(
    ("sh", "-c", _SAMPLE, str(_CHUNK_SECONDS), _FIELDS.format("event"), _FIELDS.format("throttle")),
    timeout_seconds=_CHUNK_SECONDS + 20.0,
)


@dataclass(frozen=True)
class BurnInResult:
    """The all-reduces of a burn-in, and each node's answers to NVIDIA's programs and for `burn_in`, in that order.

    ``facts`` are the facts of all nodes, with the results of the burn-in added.
    """

    measurement: Measurement
    answers: Mapping[str, tuple[Completed, ...]]
    facts: Mapping[str, Facts] = field(default_factory=dict, repr=False)

    @property
    def excluded(self) -> Mapping[str, Excluded]:
        """The nodes that took no part, or dropped out before the end."""
        return self.measurement.excluded

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C stopped the burn-in."""
        return self.measurement.interrupted

    def added_to(self, facts_by_node: Mapping[str, Facts]) -> dict[str, Facts]:
        """Return the facts of all nodes with the results of the burn-in, or the reason why a node took no part."""
        return {name: self._added(facts) for name, facts in facts_by_node.items()}

    def _added(self, facts: Facts) -> Facts:
        if facts.node not in self.answers:
            reason = self._reason(facts.node)
            unread = {probe.name: Unknown(reason.why) for probe in _LOADS}
            return replace(facts, values={**facts.values, **unread}).with_answer(excluded_answer(reason), burn_in)
        for answer, probe in zip(self.answers[facts.node], (*_LOADS, burn_in), strict=True):
            facts = facts.with_answer(answer, probe)
        return facts

    def _reason(self, node: str) -> Excluded:
        return self.excluded.get(node) or Excluded(node, "unknown", "no burn-in was run here")


def burn(
    pool: Pool,
    sampled: Pool,
    fabric: Fabric,
    profiles: Mapping[str, Profile],
    request: MeasureRequest,
    context: MeasureContext,
    seconds: float,
) -> BurnInResult:
    """Burn in the nodes of ``pool`` that are proved idle, for ``seconds`` after NVIDIA's diagnosis.

    ``sampled`` has transports of its own to the same nodes, through which their GPUs are sampled under load.
    """
    context.activity("dcgmi diag -r 3 and nvbandwidth, if they are installed")
    with idle_nodes(pool, profiles, request, context):
        tested = {name: tuple(answers) for name, answers in pool.ask([probe.question for probe in _LOADS]).items()}
    sampled.exclude(pool.excluded.values())
    before, began = pool.facts(_ASKED), time.monotonic()
    request = replace(request, scopes=("node",))
    with GpuSampler(sampled) as sampler:
        measurement = measure(
            pool, fabric, profiles, request, context, plan=repeat_for(seconds), iterations=_ITERATIONS
        )
        if measurement.interrupted:
            sampled.close()  # the last samples are not needed
    lasted, after = time.monotonic() - began, pool.facts(_ASKED)
    measurement = replace(measurement, excluded={**pool.excluded, **measurement.excluded})
    answers: dict[str, tuple[Completed, ...]] = {}
    for name in after:
        if name in before and name not in measurement.excluded:
            gpus = summarize(sampler.samples.get(name, ()))
            own = replace(figures_of(measurement.evidence, name), seconds=lasted, gpus=gpus)
            answers[name] = (*tested[name], to_answer(name, _with_counts(own, before[name], after[name])))
    return BurnInResult(measurement, answers)


def repeat_for(seconds: float, clock: Callable[[], float] = time.monotonic) -> Plan:
    """Return a plan that measures each node by itself, all nodes at once, until ``seconds`` after its first call."""
    ends: list[float] = []

    def plan(evidence: Evidence) -> Round | None:
        ends.append(clock() + seconds)
        if clock() >= ends[0] or "node" not in evidence.scopes:  # the tcp engine cannot measure a single node
            return None
        return Round("node", tuple(RankGroup((name,)) for name in evidence.fabric.nodes), "burn-in")

    return plan


class GpuSampler:
    """Context manager that samples the GPUs of ``pool`` once a second; ``samples`` holds the answers by node."""

    def __init__(self, pool: Pool) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self._pool = pool
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> GpuSampler:  # noqa: PYI034 - Self came with Python 3.11
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join(0.0 if error else None)  # after Ctrl-C the last samples are not needed

    def _work(self) -> None:
        with contextlib.suppress(CancelledError):  # which ends the burn-in itself, too
            while not self._done.is_set() and self._pool.hosts:
                self._sample()

    def _sample(self) -> None:
        for name, (answer,) in self._pool.ask([_SAMPLING]).items():
            self.samples.setdefault(name, []).extend(parse_samples(answer.out))
            if answer.exit and not answer.timed_out:
                why = f"cannot sample its GPUs: {answer.last_words()}"
                self._pool.exclude([Excluded(name, "unknown", why)])


def figures_of(evidence: Evidence, node: str) -> BurnIn:
    """Return the results of one node's own rounds."""
    own = [f for m in evidence.rounds for f in m.figures if f.group.nodes == (node,)]
    figures = tuple(figure.gb_per_s for figure in own if figure.gb_per_s is not None)
    return BurnIn(0.0, figures, tuple(f"{f.trouble}: {f.detail}".rstrip(": ") for f in own if f.trouble))


def _with_counts(burnt: BurnIn, before: Facts, after: Facts) -> BurnIn:
    """Return ``burnt`` with the counters that increased in between, and those that could not be read."""
    unreadable = [f"{p.name}: {v.why}" for p in _COUNTED for v in (before[p], after[p]) if isinstance(v, Unknown)]
    grown = list(growths(_counters(before), _counters(after)))
    return replace(
        burnt,
        grown=tuple(str(growth) for growth in grown if growth.is_fault(burnt.seconds)),
        noticed=tuple(str(growth) for growth in grown if not growth.is_fault(burnt.seconds)),
        xids=tuple(new_xids(before, after)),
        blind=(*dict.fromkeys(unreadable), *_saturated(after)),
    )


def _saturated(facts: Facts) -> Iterator[str]:
    """Yield the counters that reached their maximum, and so cannot show an increase."""
    value = facts[saturated_counters]
    for counter in () if isinstance(value, Unknown) else value:
        yield f"{counter.device}: {counter.name} is at its maximum of {counter.maximum} and counts no more"


def increased_counters(before: Facts, after: Facts) -> list[str]:
    """Return the error counters that increased, each after its part: ``gpu3: ecc_uncorrected_volatile 0 → 2``."""
    return [str(growth) for growth in growths(_counters(before), _counters(after))]


def _counters(facts: Facts) -> tuple[Mapping[str, Mapping[str, int]], ...]:
    links, ports = facts[nvlink_errors], facts[error_counters]
    return _of_gpus(facts), {} if isinstance(links, Unknown) else links, {} if isinstance(ports, Unknown) else ports


def _of_gpus(facts: Facts) -> Mapping[str, Mapping[str, int]]:
    """Return each GPU's counters: uncorrectable errors, rows remapped for them, and pending or failed remappings."""
    value = facts[smi]
    if isinstance(value, Unknown):
        return {}
    counted: dict[str, dict[str, int]] = {}
    for gpu in value.gpus:
        rows = gpu.remapped_rows
        counts: dict[str, int | None] = {
            "ecc_uncorrected_volatile": gpu.ecc_uncorrected_volatile,
            "ecc_uncorrected_aggregate": gpu.ecc_uncorrected_aggregate,
            "remapped_rows_uncorrectable": rows.uncorrectable if rows else None,
            "remapped_rows_pending": rows.pending if rows else None,
            "remapped_rows_failed": rows.failure if rows else None,
        }
        counted[gpu.subject] = {name: int(count) for name, count in counts.items() if count is not None}
    return counted


def new_xids(before: Facts, after: Facts) -> list[str]:
    """Return the Xid events that were logged in between: ``0000:1b:00.0: Xid 48, …``."""
    then, now = before[kernel_log], after[kernel_log]
    if isinstance(then, Unknown) or isinstance(now, Unknown):
        return []
    earlier = {(event.seconds, event.address, event.code, event.text) for event in then.xids}
    new = [x for x in now.xids if (x.seconds, x.address, x.code, x.text) not in earlier]
    return [f"{event.address}: Xid {event.code}, {event.text}" for event in new]
