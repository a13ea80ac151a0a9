"""Reports of answers: the hosts that answered with equal answers folded, and the files in which facts are saved."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import MappingProxyType

from gpuops.facts import Facts, to_document
from gpuops.files.replacing import PRIVATE, private_directory
from gpuops.inventory import Host
from gpuops.inventory.machine_vars import machine_vars
from gpuops.reasons import Excluded
from gpuops.report.output import write
from gpuops.report.page import Page, clean, fold
from gpuops.results.answers import Answers
from gpuops.results.health import format_exclusion
from gpuops.shell import Completed

_NO_NODES: Mapping[str, Excluded] = MappingProxyType({})


def ping(answers: Answers[float], page: Page) -> Iterator[str]:
    """Yield ``OK  3  gpu[01-03]  median 0.12 s``, then the hosts that did not answer, by reason."""
    if answers.values:
        summary = f"{fold(answers.values)}  median {median(answers.values.values()):.2f} s"
        yield from page.labelled(f"OK     {len(answers.values):>4}", summary, 13)
    for why, hosts in by_reason(answers.excluded.values()).items():
        yield from page.labelled(f"FAILED {len(hosts):>4}", f"{fold(hosts)}  {clean(why)}", 13)


def blocks(answers: Answers[Completed], timeout: float) -> Iterator[str]:
    """Yield one block for each distinct answer: its hosts, exit status and text; then the hosts without an answer."""
    hosts_by_answer: dict[tuple[str, str], list[str]] = {}
    for host, answer in answers.values.items():
        hosts_by_answer.setdefault(_ending_and_text(answer, timeout), []).append(host)
    for (ending, text), hosts in hosts_by_answer.items():
        yield f"{fold(hosts)}: {ending}".rstrip(": ")
        yield from (f"  {clean(line)}" for line in text.splitlines())
    for why, hosts in by_reason(answers.excluded.values()).items():
        yield f"{fold(hosts)}: {clean(why)}"


def by_reason(excluded: Iterable[Excluded]) -> dict[str, list[str]]:
    """Return the hosts without an answer, by reason."""
    hosts: dict[str, list[str]] = {}
    for each in excluded:
        hosts.setdefault(each.why, []).append(each.host)
    return hosts


def _ending_and_text(answer: Completed, timeout: float) -> tuple[str, str]:
    ending = f"killed after {timeout:g} s" if answer.timed_out else f"exit {answer.exit}" if answer.exit else ""
    suffix = "\n(output truncated)" if answer.truncated else ""
    return ending, answer.out + answer.err + suffix


def save_facts(
    facts_by_node: Mapping[str, Facts],
    folder: str | Path,
    excluded: Mapping[str, Excluded] = _NO_NODES,
    hosts: Iterable[Host] = (),
) -> None:
    """Save the answers of each node as ``folder/NODE.json`` for `gpuops.Cluster.saved`, or raise `OutputError`.

    The directory must be closed to others, and is created so. The facts must have been collected with
    ``keep_answers=True``. Of a node without facts, save why it is ``excluded``, and what the inventory says about its
    machine, if it is among ``hosts``.
    """
    folder = Path(folder)
    private_directory(folder, strict=True)
    now = dt.datetime.now(dt.timezone.utc)
    reasons = {node: replace(each, why=format_exclusion(each)) for node, each in excluded.items()}
    declared = {host.name: machine_vars(host) for host in hosts}
    silent = {n: Facts(n, now, {}, excluded=each, declared=declared.get(n, {})) for n, each in reasons.items()}
    for node, facts in {**silent, **facts_by_node}.items():
        write(to_document(facts), folder / f"{node}.json", PRIVATE)
