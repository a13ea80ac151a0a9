"""Bundles of evidence: every host is judged, asked for what its vendor wants, and packed into one archive."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuops.bundle import archive
from gpuops.bundle.answers import contents_of, private_in
from gpuops.bundle.bug_report import Choices, collect_report
from gpuops.bundle.contents import Contents, File, LeftOut
from gpuops.bundle.history import history_of
from gpuops.bundle.items import FIGURES, FINDINGS, HISTORY, ITEMS
from gpuops.bundle.private import Private, cleaned_document
from gpuops.bundle.serials import serials_of
from gpuops.errors import CancelledError, GpuopsError, InputError, LockedError, OutputError
from gpuops.facts import Facts
from gpuops.files.replacing import private_directory
from gpuops.inventory import Host
from gpuops.judging import Verdict
from gpuops.operations.validate import validate
from gpuops.requests import BundleRequest, ValidateRequest
from gpuops.results.bundles import Bundle, Bundles
from gpuops.results.health import Report
from gpuops.store import Runs
from gpuops.transport.agent import AgentTransport
from gpuops.workspace import Workspace

_FORKS = 8
"""Nodes at a time: the evidence of each is held in memory, up to about a hundred MiB."""
_DMIDECODE = "dmidecode.txt"


@dataclass(frozen=True)
class _Context:
    """What is the same for every host; ``why_not`` is the reason if no report could be made."""

    work: Workspace
    request: BundleRequest
    report: Report | None
    why_not: str = ""


def bundle(work: Workspace, request: BundleRequest) -> Bundles:
    """Write an archive for every host that answers; raise `OutputError` if the directory cannot be created."""
    if request.report_timeout <= 0:
        raise InputError(f"report_timeout: expected more than 0 seconds, found {request.report_timeout:g}")
    private_directory(request.directory)
    context = _judged(work, request)
    nodes = replace(work.nodes, forks=min(work.nodes.forks, _FORKS))
    gathered = nodes.collect(lambda transport, host: _collected(transport, host, context), "collecting evidence")
    return Bundles(gathered.values, gathered.excluded, gathered.interrupted)


def _judged(work: Workspace, request: BundleRequest) -> _Context:
    """Return the context with a report; an inventory that validate refuses costs the findings only."""
    try:
        return _Context(work, request, validate(work, ValidateRequest(save_run=False)))
    except CancelledError:
        raise
    except GpuopsError as error:
        return _Context(work, request, None, str(error))


def _collected(transport: AgentTransport, host: Host, context: _Context) -> Bundle:
    """Return the bundle of one host; its archive is written here, so that its evidence is not held any longer."""
    request = context.request
    at = dt.datetime.now(dt.timezone.utc)
    answers = transport.batch([item.question for item in ITEMS])
    private = private_in(answers)
    contents = contents_of(ITEMS, answers, private)
    choices = Choices(request.report_timeout, request.safe_mode, request.extra_system_data)
    contents += collect_report(transport, choices, private)
    contents += _findings(context, host.name, private) + _history(context.work, host.name, private)
    facts = context.report.facts.get(host.name) if context.report else None
    return _written(request.directory, host.name, at, facts, contents)


def _written(directory: Path, node: str, at: dt.datetime, facts: Facts | None, contents: Contents) -> Bundle:
    dmidecode = next((file.content.decode() for file in contents.files if file.name == _DMIDECODE), "")
    manifest = archive.manifest_of(node, at, serials_of(facts, dmidecode), contents)
    path = archive.write_bundle(directory, at, manifest, contents)
    return Bundle(str(path), path.stat().st_size, manifest)


def _findings(context: _Context, node: str, private: Private) -> Contents:
    """Return validate's report of one node."""
    if context.report is None:
        return Contents(left_out=(LeftOut(FINDINGS, "failed", context.why_not),))
    document = cleaned_document(_document(context.report, node), private)
    return Contents((File(FINDINGS, json.dumps(document, indent=1).encode(), "gpuops validate"),))


def _document(report: Report, node: str) -> Mapping[str, Any]:
    hosts = tuple(host for host in report.hosts if host.name == node)
    return replace(
        report,
        hosts=hosts,
        cluster_verdicts=tuple(v for v in report.cluster_verdicts if _concerns(v, node)),
        unmatched=tuple(each for each in report.unmatched if node in each.hosts),
    ).to_document()


def _concerns(verdict: Verdict, node: str) -> bool:
    return any(node in finding.hosts for finding in verdict.findings)


def _history(work: Workspace, node: str, private: Private) -> Contents:
    try:
        with Runs(work.project.store_path, create=False) as runs:
            return history_of(runs, node, private)
    except (OutputError, LockedError) as error:
        return Contents(left_out=tuple(LeftOut(name, "failed", str(error)) for name in (HISTORY, FIGURES)))
