"""Health report as JUnit XML for Jenkins, GitLab and GitHub Actions: one suite per node, one case per check."""

from __future__ import annotations

import datetime as dt
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator

from gpuops.judging import Finding, Verdict
from gpuops.report.finding import comparison
from gpuops.report.page import clean
from gpuops.results.health import HostReport, Report, format_exclusion

SUFFIX = ".xml"
_CLUSTER = "all nodes"


def render(report: Report) -> str:
    """Return the document: a failed check is a failure, a required but unknown one an error; a warning passes."""
    root = ET.Element("testsuites", name="gpuops")
    for host in report.hosts:
        root.append(_suite(report, host.name, _cases(host)))
    if report.cluster_verdicts:
        root.append(_suite(report, _CLUSTER, (_judged(v, required=False) for v in report.cluster_verdicts)))
    root.attrib |= _counts(root) | {"time": _seconds(report)}
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content.decode() + "\n"


def _suite(report: Report, name: str, cases: Iterable[ET.Element]) -> ET.Element:
    started = report.run.started_at.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    suite = ET.Element("testsuite", name=clean(name), timestamp=started, hostname=clean(name))
    for case in cases:
        case.attrib |= {"classname": f"gpuops.{clean(name)}", "time": "0"}
        suite.append(case)
    suite.attrib |= _counts(suite) | {"time": _seconds(report)}
    return suite


def _counts(element: ET.Element) -> dict[str, str]:
    paths = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    return {word: str(sum(1 for _ in element.iter(tag))) for word, tag in paths.items()}


def _seconds(report: Report) -> str:
    return f"{report.run.seconds:.3f}"


def _cases(host: HostReport) -> Iterator[ET.Element]:
    """Yield the cases of a host; ``reach`` is the case for the connection to the node itself."""
    if host.excluded is not None:
        yield _case("reach", "error", format_exclusion(host.excluded))
    required = {v.check for v in host.required_unknown}
    for verdict in host.verdicts:
        yield _judged(verdict, required=verdict.check in required)


def _judged(verdict: Verdict, *, required: bool) -> ET.Element:
    texts = [_finding_text(finding) for finding in verdict.findings]
    if verdict.status == "fail":
        message = verdict.findings[0].message if verdict.findings else verdict.why
        return _case(verdict.check, "failure", message, texts)
    if verdict.status in ("unknown", "skipped"):
        return _case(verdict.check, "error" if required else "skipped", verdict.why, texts)
    case = ET.Element("testcase", name=verdict.check)
    if texts:
        ET.SubElement(case, "system-out").text = "\n".join(texts)
    return case


def _case(name: str, outcome: str, message: str, texts: Iterable[str] = ()) -> ET.Element:
    case = ET.Element("testcase", name=clean(name))
    what = ET.SubElement(case, outcome, message=clean(message))
    what.text = "\n".join(texts) or None
    if outcome != "skipped":
        what.set("type", outcome)
    return case


def _finding_text(finding: Finding) -> str:
    lines = [f"{finding.severity} {finding.part_label or finding.part}: {finding.message}", comparison(finding)]
    lines += [f"explains: {effect}" for effect in finding.effects]
    lines += [f"do: {finding.fix}"] if finding.fix else []
    return "\n".join(clean(line) for line in lines if line)
