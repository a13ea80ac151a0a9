"""Validation: every node is asked and judged; higher levels also measure the nodes that are proved idle."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuops.assessment import Judged, alone, assess, place_of, probes_for, profile_by_node
from gpuops.collective.request import MeasureRequest
from gpuops.errors import InputError, did_you_mean
from gpuops.facts import Facts, SavedFacts
from gpuops.inventory import Host
from gpuops.inventory.machine_vars import completed
from gpuops.judging import LEVELS, Check, Level, Verdict, choose, expired, probes_of, unused, waive
from gpuops.judging.common import fold_common, shared_silence
from gpuops.judging.own_outcomes import merged
from gpuops.operations import burn_in, measure
from gpuops.operations.health import check_profiles, check_required, without_gpus
from gpuops.operations.learn import unmatched
from gpuops.operations.own_tests import run_tests
from gpuops.operations.past import overtime
from gpuops.placement import SHAPE_PROBES
from gpuops.probes.nvidia.topo import topo
from gpuops.probing import Probe
from gpuops.profile import Profile
from gpuops.reasons import Excluded
from gpuops.requests import ValidateRequest
from gpuops.results.health import Report, Run, build
from gpuops.version import __version__
from gpuops.workspace import Workspace


@dataclass(frozen=True)
class _Evidence:
    """Facts about the nodes, the reasons why others have none, and the verdicts of the project's own tests.

    ``judged`` has the verdicts of nodes that were judged where they were read, and ``whole`` the facts of all nodes.
    ``declared`` is what saved facts say about the machines of nodes that had not answered.
    """

    facts: Mapping[str, Facts]
    excluded: Mapping[str, Excluded]
    interrupted: bool = False
    of_tests: Sequence[Verdict] = ()
    judged: Mapping[str, list[Verdict]] = field(default_factory=dict)
    whole: Mapping[str, Facts] | None = None
    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def validate(work: Workspace, request: ValidateRequest) -> Report:
    """Judge every host under its profile."""
    if request.level not in LEVELS:
        raise InputError(f'unknown level "{request.level}"{did_you_mean(request.level, LEVELS)}')
    work, known = work.of_saved(request.facts), work.catalogue.checks()
    checks = choose(known, request.level, tuple(request.only), tuple(request.skip))
    check_profiles(work.hosts, work.catalogue)
    check_required(work.catalogue)
    load = MeasureRequest(engine=request.engine, force_busy=tuple(request.force_busy))
    measure.check(work, load.force_busy)
    started_at, began = dt.datetime.now(dt.timezone.utc), time.monotonic()
    _note_unused(work, checks, request)
    evidence = _ask(work, checks, request)
    if not evidence.interrupted:
        of_tests, interrupted = run_tests(work, checks, evidence.facts)
        evidence = replace(evidence, of_tests=of_tests, interrupted=interrupted)
    if work.nodes.source != "saved":
        evidence = _measured(work, checks, evidence, load, request)
    evidence = replace(evidence, facts=overtime.recalled(work, checks, evidence.facts))
    seconds = time.monotonic() - began
    run = Run(__version__, started_at, work.nodes.name, request.level, seconds, work.invocation)
    return _judged(work, run, checks, evidence, _answerable(work, known, not_run(known, request), evidence.facts))


def _note_unused(work: Workspace, checks: Sequence[Check], request: ValidateRequest) -> None:
    """Report the settings of a load that no check here uses."""
    default, is_saved = ValidateRequest(), work.nodes.source == "saved"
    heavy = frozenset() if is_saved else _loads(checks)
    is_unused = {
        "--engine": request.engine != default.engine and not heavy,
        "--force-busy": bool(request.force_busy) and not heavy,
        "--burn-in": request.burn_in != default.burn_in and not heavy - {"all_reduce"},
    }
    why = "saved answers are not measured" if is_saved else f"no chosen check needs it at level {request.level}"
    for option in (option for option, is_so in is_unused.items() if is_so):
        work.note(f"{option} is ignored: {why}")


def _loads(checks: Sequence[Check]) -> frozenset[str]:
    return frozenset(probe.name for probe in probes_of(checks) if probe.cost == "heavy")


def _ask(work: Workspace, checks: Sequence[Check], request: ValidateRequest) -> _Evidence:
    """Collect the facts that the checks need; those of saved nodes include what a load showed.

    A check that needs a load also needs what a measurement asks before it, even if no other check is chosen.
    """
    saved = work.nodes.source == "saved"
    needed = probes_for(checks) if saved else overtime.with_figures(probes_for(checks))
    if not saved and topo in needed:  # what place and render then need not ask again
        needed = list(dict.fromkeys([*needed, *SHAPE_PROBES]))
    if not saved and any(probe.cost == "heavy" for probe in needed):
        needed = list(dict.fromkeys([*needed, *measure.probes(work, request.skip)]))
    probes = [probe for probe in needed if saved or probe.cost != "heavy"]
    if saved and not request.facts and not request.keep_answers:
        return _judged_as_read(work, checks, probes)
    gathered = work.nodes.gather(probes, keep_answers=request.keep_answers, facts=request.facts)
    return _Evidence(gathered.values, gathered.excluded, gathered.interrupted, declared=gathered.declared)


def _judged_as_read(work: Workspace, checks: Sequence[Check], probes: Sequence[Probe[Any]]) -> _Evidence:
    """Return the evidence of saved nodes, each of which is judged by the process that reads it, if it can be."""
    judge_alone = alone(checks, list(work.catalogue.profiles().values()))

    def judge_one(host: Host, facts: Facts) -> Judged:
        return judge_alone(host, overtime.recalled(work, checks, {host.name: facts})[host.name])

    gathered = work.nodes.read(probes, judge_one)
    judged = {name: each.verdicts for name, each in gathered.values.items() if each.verdicts is not None}
    facts = {name: each.facts for name, each in gathered.values.items()}
    whole = SavedFacts(work.nodes.folder, probes, facts) if work.nodes.folder else facts
    return _Evidence(
        facts, gathered.excluded, gathered.interrupted, judged=judged, whole=whole, declared=gathered.declared
    )


def _measured(
    work: Workspace, checks: Sequence[Check], evidence: _Evidence, load: MeasureRequest, request: ValidateRequest
) -> _Evidence:
    """Add the facts that nodes show under the load that ``checks`` need, or why they took no load."""
    heavy = _loads(checks)
    if "all_reduce" in heavy and not evidence.interrupted:
        measurement = measure.measure_known(work, load, evidence.facts, skip=request.skip)
        evidence = replace(evidence, facts=measurement.facts, interrupted=measurement.interrupted)
    if heavy - {"all_reduce"} and not evidence.interrupted:
        result = burn_in.burn(work, load, evidence.facts, request.burn_in, request.skip)
        evidence = replace(evidence, facts=result.facts, interrupted=result.interrupted)
    return evidence


def _judged(
    work: Workspace,
    run: Run,
    checks: Sequence[Check],
    evidence: _Evidence,
    levels_not_run: Mapping[Level, tuple[str, ...]],
) -> Report:
    profiles = list(work.catalogue.profiles().values())
    hosts = {host.name: completed(host, evidence.declared.get(host.name, {})) for host in work.hosts}
    chosen = profile_by_node(hosts, evidence.facts, profiles)
    places = {name: place_of(host, evidence.facts.get(name)) for name, host in hosts.items()}
    judged_places = {name: places[name] for name in evidence.facts}
    others = [place_of(host) for host in work.unselected]
    waivers = work.waivers()
    found = assess(checks, evidence.facts, chosen, evidence.judged, may_fork=work.nodes.source == "saved")
    counted = waive(merged(found, evidence.of_tests), waivers)
    verdicts = fold_common(counted, judged_places, {c.name: c for c in checks}, others)
    verdicts += expired(work.expired_waivers())
    verdicts += shared_silence([n for n, why in evidence.excluded.items() if why.is_silent], places, others)
    bare = without_gpus(evidence.facts, chosen)
    outcomes: dict[str, Any] = {**evidence.excluded, **chosen, **bare}
    outcomes = {name: outcomes[name] for name in hosts}
    report = build(run, outcomes, verdicts)
    judged = {name: evidence.facts[name] for name, outcome in outcomes.items() if isinstance(outcome, Profile)}
    report = replace(report, unmatched=unmatched(checks, judged, chosen))
    report = replace(
        report,
        unused_waivers=tuple(unused(counted, waivers)),
        not_run={} if bare.keys() == chosen.keys() else levels_not_run,
    )
    facts = evidence.facts if evidence.whole is None else evidence.whole
    return replace(report, facts=facts, interrupted=evidence.interrupted)


def _answerable(
    work: Workspace, checks: Mapping[str, Check], by_level: Mapping[Level, tuple[str, ...]], facts: Mapping[str, Facts]
) -> dict[Level, tuple[str, ...]]:
    """Return the checks of higher levels that can run here: saved answers must include what they need.

    One of the nodes tells, because the answers of all were saved by the same command.
    """
    if work.nodes.source != "saved" or not facts:
        return dict(by_level)
    higher = [checks[name] for names in by_level.values() for name in names]
    saved = work.nodes.only([next(iter(facts))]).gather(probes_for(higher)).values
    values = next(iter(saved.values())).values if saved else {}
    can_run = {check.name for check in higher if all(probe.name in values for probe in check.needs)}
    lacking = [check.name for check in higher if check.name not in can_run]
    if lacking:
        work.note(f"the saved answers lack what these checks of higher levels need: {', '.join(lacking)}")
    kept = {level: tuple(name for name in names if name in can_run) for level, names in by_level.items()}
    return {level: names for level, names in kept.items() if names}


def not_run(checks: Mapping[str, Check], request: ValidateRequest) -> dict[Level, tuple[str, ...]]:
    """Return the checks that higher levels would run, by level; quick measures nothing between GPUs."""
    names: dict[Level, tuple[str, ...]] = {}
    for level in () if request.only else LEVELS[LEVELS.index(request.level) + 1 :]:
        higher = tuple(check.name for check in checks.values() if check.level == level)
        if higher:
            names[level] = higher
    return names
