"""The options of verbs that measure between nodes, and what they come to: a measurement."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import StatusLine, Target, fitting_fanout, tell

if TYPE_CHECKING:
    from gpuops.collective.measuring import MeasureContext, Measurement, MeasureRequest
    from gpuops.collective.pool import Pool
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


@dataclass(frozen=True)
class Measuring:
    """How to measure, as the command line says it."""

    engine: str = "auto"
    scope: str | None = None
    operation: Any = "all_reduce"
    gib: float | None = None
    seconds: float = 0.25
    force_busy: str | None = None
    interface: str = ""
    library: Path | None = None

    def wish(self, target: Target) -> MeasureRequest:
        """What is asked for; `InputError` where a word is none of ours."""
        from gpuops.collective.engines import Load
        from gpuops.collective.measuring import SCOPES, MeasureRequest

        size_bytes = round(self.gib * 2**30) if self.gib else None
        load = Load(self.operation, size_bytes, seconds=self.seconds)
        scopes = _scopes(self.scope) if self.scope else SCOPES
        forced = named_hosts(self.force_busy or "", target.hosts)
        return MeasureRequest(self.engine, scopes, load, forced, self.interface, self.library)


def _scopes(text: str) -> tuple[Scope, ...]:
    from gpuops.errors import InputError, did_you_mean

    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in _SCOPES:
            raise InputError(f'no scope called "{word}"{did_you_mean(word, _SCOPES)}; choose of node,rail,pairs,group')
    return tuple(dict.fromkeys(_SCOPES[word] for word in words))


def named_hosts(text: str, hosts: Iterable[Host]) -> frozenset[str]:
    """Those of ``hosts`` that --force-busy names; a pattern would take more than a person thought of."""
    from gpuops.errors import InputError

    names = frozenset(filter(None, map(str.strip, text.split(","))))
    unknown = ", ".join(sorted(names - {host.name for host in hosts}))
    if unknown:
        raise InputError(f"--force-busy names nodes one by one, and none of these is called {unknown}")
    return names


def probes() -> list[Probe[Any]]:
    """What must be known of a node before it is measured: its health, its GPUs and NICs, and its profile."""
    from gpuops.cli._health import quick_probes
    from gpuops.collective.fabrics import NEEDS

    return quick_probes(*NEEDS)


def gather(target: Target, *, keep_answers: bool = False) -> tuple[dict[str, Facts], dict[str, Excluded]]:
    """What the nodes say, and why the others do not."""
    from gpuops.cli._outcomes import gathered

    return gathered(target, probes(), "reaching nodes", keep_answers=keep_answers)


def measure(target: Target, known: Mapping[str, Facts], wish: MeasureRequest) -> tuple[dict[str, Facts], Measurement]:
    """Measure the hosts of ``known`` that pass the quick checks; their facts with what that shows of each.

    Who took no part is among them, and says why.
    """
    from gpuops.cli._life import scheduler_of
    from gpuops.collective import measuring

    hosts, profiles, failing = healthy(target, known)
    with scheduler_of(target) as scheduler, pool_of(target, hosts) as pool, Rounds() as rounds:
        rounds.show("the fabric")
        fabric = wired(pool, known)
        found = measuring.measure(pool, fabric, profiles, wish, surroundings(target, rounds, scheduler))
    found = replace(found, excluded={**failing, **found.excluded})
    return measuring.with_evidence(known, found), found


def healthy(target: Target, known: Mapping[str, Facts]) -> tuple[list[Host], dict[str, Profile], dict[str, Excluded]]:
    """The hosts of ``known`` that pass the quick checks, the profiles of all, and why the others do not."""
    from gpuops.cli._health import profiles_of, unhealthy

    profiles = profiles_of(target.judged_hosts, known)
    failing = unhealthy(known, profiles)
    return [host for host in target.hosts if host.name in known and host.name not in failing], profiles, failing


def wired(pool: Pool, known: Mapping[str, Facts]) -> Fabric:
    """The fabric between the nodes of ``pool``, which are asked for its leaves where they may tell."""
    from gpuops.collective.fabrics import fabric_of, leaves_of

    told = {name: known[name] for name in pool.hosts}
    return fabric_of(list(pool.hosts.values()), told, leaves_of(pool, told))


def pool_of(target: Target, hosts: Iterable[Host]) -> Pool:
    """``hosts`` with transports that stay open, as a context."""
    from gpuops.collective.pool import Pool

    return Pool(hosts, target.connections, fitting_fanout(target.fanout or target.project.fanout))


def surroundings(target: Target, rounds: Rounds, scheduler: ProjectScheduler, *, minutes: int = 60) -> MeasureContext:
    """The ``scheduler``, its lease for so many ``minutes`` at most, and ``rounds`` to hear of what happens."""
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

        done = len(evidence.rounds)
        left = (max_rounds(evidence.fabric) - done) * (time.monotonic() - self._began) / done if done else 0.0
        most = f"   at most {_clock(left)} left" if left else ""
        groups = f"{len(planned.groups)} group{'s' if len(planned.groups) != 1 else ''}"
        self.show(f"round {done + 1}: {planned.why}   {groups}{most}")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def measuring_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how to measure; the verb gets them as ``how``."""

    @functools.wraps(verb)
    def with_how(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in Measuring.__dataclass_fields__}
        return verb(how=Measuring(**chosen), **options)

    for option in reversed(_OPTIONS):
        with_how = option(with_how)
    return with_how


_OPTIONS = [
    click.option(
        "--engine",
        type=click.Choice(["auto", "nccl", "nccl-tests", "tcp"]),
        default="auto",
        show_default=True,
        help="nccl: the nodes' own libnccl.so.2; nccl-tests: all_reduce_perf; tcp: Python alone.",
    ),
    click.option("--scope", metavar="SCOPES", help="Of node,rail,pairs,group; all by default."),
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
    click.option("--force-busy", metavar="HOSTS", help="Measure these hosts though somebody uses them; name each."),
    click.option("--interface", default="", metavar="IF", help="The interface that tcp and the first tests use."),
    click.option(
        "--libnccl",
        "library",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A libnccl.so.2 to send to the nodes' memory.",
    ),
]
