"""The options of verbs that measure between nodes, and the measurement that they ask for."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import StatusLine, Target, fitting_fanout, tell

if TYPE_CHECKING:
    from gpuops.collective.measurement import Measurement
    from gpuops.collective.measuring import MeasureContext
    from gpuops.collective.pool import Pool
    from gpuops.collective.request import MeasureRequest
    from gpuops.collective.session import Plan
    from gpuops.facts import Facts
    from gpuops.inventory import Host
    from gpuops.isolation.evidence import Evidence
    from gpuops.isolation.fabric import Fabric
    from gpuops.isolation.rounds import Round, Scope
    from gpuops.lifecycle.scheduler import ProjectScheduler
    from gpuops.probing import Probe
    from gpuops.profile import Profile
    from gpuops.reasons import Excluded

_SCOPES: dict[str, Scope] = {"node": "node", "rail": "rail", "pairs": "pair", "pair": "pair", "group": "group"}


def check_force_busy(request: MeasureRequest, hosts: Iterable[Host]) -> None:
    """Raise `InputError` if the request names a host that is not among ``hosts``; called before any host is asked.

    Names are not patterns: a pattern would take more than a person thought of.
    """
    from gpuops.errors import InputError

    unknown = ", ".join(sorted(set(request.force_busy) - {host.name for host in hosts}))
    if unknown:
        raise InputError(f"--force-busy names nodes one by one, and none of these is called {unknown}")


def names_in(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """The names in the value of --force-busy."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, (text or "").split(",")))))


def _scopes_in(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[Scope, ...]:
    """The scopes in the value of --scope; all without it."""
    from gpuops.errors import InputError, did_you_mean

    words = [word.strip() for word in text.split(",")] if text else list(_SCOPES)
    for word in words:
        if word not in _SCOPES:
            raise InputError(f'no scope called "{word}"{did_you_mean(word, _SCOPES)}; choose of node,rail,pairs,group')
    return tuple(dict.fromkeys(_SCOPES[word] for word in words))


def probes() -> list[Probe[Any]]:
    """What must be known of a node before it is measured: its health, its GPUs and NICs, and its profile."""
    from gpuops.cli._health import quick_probes
    from gpuops.collective.fabrics import NEEDS

    return quick_probes(*NEEDS)


def gather(target: Target, *, keep_answers: bool = False) -> tuple[dict[str, Facts], dict[str, Excluded]]:
    """What the nodes say, and why the others do not."""
    from gpuops.cli._outcomes import gathered

    return gathered(target, probes(), "reaching nodes", keep_answers=keep_answers)


def measure(
    target: Target, facts_by_node: Mapping[str, Facts], request: MeasureRequest, plan: Plan | None = None
) -> Measurement:
    """Measure the hosts of which there are facts and that pass the quick checks; the result holds the facts of all."""
    from gpuops.cli._life import scheduler_of
    from gpuops.collective import measuring
    from gpuops.isolation import next_round

    hosts, profiles, failing = healthy(target, facts_by_node)
    with scheduler_of(target) as scheduler, pool_of(target, hosts) as pool, Rounds() as rounds:
        rounds.show("the fabric")
        fabric = fabric_for(pool, facts_by_node)
        context = context_of(target, rounds, scheduler)
        measurement = measuring.measure(pool, fabric, profiles, request, context, plan=plan or next_round)
    measurement = replace(measurement, excluded={**failing, **measurement.excluded})
    return replace(measurement, facts=measuring.with_evidence(facts_by_node, measurement))


def healthy(
    target: Target, facts_by_node: Mapping[str, Facts]
) -> tuple[list[Host], dict[str, Profile], dict[str, Excluded]]:
    """The hosts that pass the quick checks, the profiles of all that have facts, and why the others do not pass."""
    from gpuops.cli._health import profiles_of, unhealthy

    profiles = profiles_of(target.judged_hosts, facts_by_node)
    failing = unhealthy(facts_by_node, profiles)
    hosts = [host for host in target.hosts if host.name in facts_by_node and host.name not in failing]
    return hosts, profiles, failing


def fabric_for(pool: Pool, facts_by_node: Mapping[str, Facts]) -> Fabric:
    """The fabric between the nodes of ``pool``, which are asked for its leaves where they may know them."""
    from gpuops.collective.fabrics import fabric_of, leaves_of

    facts = {name: facts_by_node[name] for name in pool.hosts}
    return fabric_of(list(pool.hosts.values()), facts, leaves_of(pool, facts))


def pool_of(target: Target, hosts: Iterable[Host]) -> Pool:
    """``hosts`` with transports that stay open, as a context."""
    from gpuops.collective.pool import Pool

    return Pool(hosts, target.connections, fitting_fanout(target.fanout or target.project.fanout))


def context_of(target: Target, rounds: Rounds, scheduler: ProjectScheduler, *, minutes: int = 60) -> MeasureContext:
    """The ``scheduler``, its lease for so many ``minutes`` at most, and ``rounds`` to show what happens."""
    from gpuops.collective.idleness.lease import Lease
    from gpuops.collective.measuring import MeasureContext

    lease = Lease(target.project.lease, scheduler.slurm, tell, minutes)
    return MeasureContext(scheduler.allocations, lease, scheduler.own_job, tell, rounds.show, rounds.round)


class Rounds(StatusLine):
    """``round 6: suspects with partners that are well   488 groups   1:52``."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    def round(self, evidence: Evidence, planned: Round) -> None:
        """A round is about to start; how much is left at most follows from how long the others took."""
        from gpuops.isolation import max_rounds

        number, elapsed = len(evidence.rounds), time.monotonic() - self._began
        remaining = (max_rounds(evidence.fabric) - number) * elapsed / number if number else 0.0
        most = f"   at most {_clock(remaining)} left" if remaining else ""
        groups = f"{len(planned.groups)} group{'s' if len(planned.groups) != 1 else ''}"
        self.show(f"round {number + 1}: {planned.why}   {groups}{most}")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def measuring_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how to measure; the verb gets them as ``request``."""

    @functools.wraps(verb)
    def with_request(**options: Any) -> Any:
        from gpuops.collective.request import MeasureRequest

        own = {name: options.pop(name) for name in _FIELDS}
        return verb(request=MeasureRequest(**own), **options)

    for option in reversed(_OPTIONS):
        with_request = option(with_request)
    return with_request


_FIELDS = ("engine", "scopes", "operation", "gib", "seconds", "force_busy", "interface", "libnccl")
_OPTIONS = [
    click.option(
        "--engine",
        type=click.Choice(["auto", "nccl", "nccl-tests", "tcp"]),
        default="auto",
        show_default=True,
        help="nccl: the nodes' own libnccl.so.2; nccl-tests: all_reduce_perf; tcp: Python alone.",
    ),
    click.option(
        "--scope",
        "scopes",
        callback=_scopes_in,
        metavar="SCOPES",
        help="Of node,rail,pairs,group; all by default.",
    ),
    click.option(
        "--operation",
        type=click.Choice(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]),
        default="all_reduce",
        show_default=True,
        help="What the ranks do.",
    ),
    click.option(
        "--gib", type=click.FloatRange(min=0, min_open=True), metavar="GIB", help="Payload of a rank, in GiB."
    ),
    click.option(
        "--seconds",
        type=click.FloatRange(0.1, 600),
        default=0.25,
        show_default=True,
        metavar="S",
        help="How long tcp measures each group.",
    ),
    click.option(
        "--force-busy",
        callback=names_in,
        metavar="HOSTS",
        help="Measure these hosts though somebody uses them; name each.",
    ),
    click.option("--interface", default="", metavar="IF", help="The interface that tcp and the first tests use."),
    click.option(
        "--libnccl",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A libnccl.so.2 to send to the nodes' memory.",
    ),
]
