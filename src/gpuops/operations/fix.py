"""Fix of a finding: previewed, applied to nodes that take no jobs, and judged again by the same check."""

from __future__ import annotations

from dataclasses import replace

from gpuops.assessment import probes_for
from gpuops.bundle.archive import prune
from gpuops.errors import CancelledError, ContentError, GpuopsError, NodeError
from gpuops.judging import Check, Verdict, judge
from gpuops.lifecycle.states import state_of
from gpuops.operations.bundle import bundle
from gpuops.operations.health import profiles_of
from gpuops.operations.provision import provision
from gpuops.playbook.record import Record
from gpuops.proposal import propose
from gpuops.reasons import Objection
from gpuops.requests import BundleRequest, FixRequest, ProvisionRequest
from gpuops.results.repair import WOULD_CHANGE, Repair
from gpuops.workspace import Workspace

_MOST_BUNDLES = 20
_REPORT_SECONDS = 300.0
"""Time for nvidia-bug-report.sh, which is shorter than for a bundle alone: an operator waits for the fix."""


def fix(work: Workspace, request: FixRequest) -> Repair:
    """Preview the fix; unless ``check_only`` is set, apply it if it changes something, and judge the nodes again.

    Raise `NodeError` if a node takes jobs, unless ``force`` is set.
    """
    check, path = _fix_of(work, request.check)
    asked = ProvisionRequest(path, check=True, force=request.force, break_lock=request.break_lock)
    preview = replace(provision(work, asked), playbook=f"fixes/{request.check}")
    repair = Repair(check.name, preview)
    if not repair.needed:
        return _judged(work, check, repair) if preview.conclusion() == "ok" else repair
    repair = replace(repair, blocked={} if request.force else _in_use(work))
    if request.check_only:
        return repair
    for node, objection in repair.blocked.items():
        raise NodeError(node, f"{objection.why}; first: {objection.do}")
    if request.bundle:
        repair = replace(repair, bundles=_keep_evidence(work, preview))
    record = replace(provision(work, replace(asked, check=False)), playbook=preview.playbook)
    repair = replace(repair, record=record, interrupted=record.interrupted)
    return _judged(work, check, repair) if record.conclusion() == "ok" else repair


def _keep_evidence(work: Workspace, preview: Record) -> dict[str, str]:
    """Keep a bundle of each node that will be changed, beside the store; say which nodes have none, and go on."""
    nodes = list(dict.fromkeys(result.node for result in preview.results if result.status in WOULD_CHANGE))
    directory = work.project.store_path.parent / "bundles"
    try:
        made = bundle(work.of(nodes), BundleRequest(directory, report_timeout=_REPORT_SECONDS))
    except CancelledError:
        raise
    except GpuopsError as error:
        work.note(f"no evidence is kept of {', '.join(nodes)}, and the fix goes on: {error}")
        return {}
    if made.interrupted:
        raise CancelledError("interrupted")
    for node, why in made.excluded.items():
        work.note(f"no evidence is kept of {node}, and the fix goes on: {why.why}")
    for node in made.bundles:
        prune(directory, node, _MOST_BUNDLES)
    return {node: each.path for node, each in made.bundles.items()}


def _in_use(work: Workspace) -> dict[str, Objection]:
    """Return the nodes that take jobs."""
    with work.scheduler() as scheduler:
        busy = scheduler.control.still_busy(work.hosts)
    with work.open_store(create=False) as store:
        states = {host.name: state_of(store.latest(host.name)) for host in work.hosts}
    return {
        name: Objection(busy.get(name) or "it is admitted", propose("drain", name, "--reason", "WHY", "--wait", "3600"))
        for name, state in states.items()
        if busy.get(name) or state == "admitted"
    }


def _fix_of(work: Workspace, name: str) -> tuple[Check, str]:
    """Return the check and the file of its playbook; raise `ContentError` if it has none."""
    checks, fixes = work.catalogue.checks(), work.catalogue.fixes()
    name = name.replace("_", "-")
    check = checks[name]
    if name not in fixes:
        raise ContentError(f"no playbook fixes {name} (known: {', '.join(fixes)}); fix it by hand: {check.fix}")
    return check, str(fixes[name].path)


def _judged(work: Workspace, check: Check, repair: Repair) -> Repair:
    """Return ``repair`` with the current verdicts of the check."""
    gathered = work.nodes.gather(probes_for([check]), "judging again")
    gathered.raise_if_interrupted()
    profiles = profiles_of(work.hosts, gathered.values, work.catalogue)
    verdicts: tuple[Verdict, ...] = tuple(
        judge(check, facts, profiles[name]) for name, facts in gathered.values.items()
    )
    return replace(repair, verdicts=verdicts, excluded=gathered.excluded)
