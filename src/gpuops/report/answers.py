"""Text report of answers: the hosts that answered, and equal answers folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from gpuops.reasons import Excluded
from gpuops.report.page import Page, clean, fold
from gpuops.results.answers import Answers
from gpuops.shell import Completed


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
