"""Text reports of node states: all at a glance, the history of one, and transitions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping

from gpuops.lifecycle.life import format_objection
from gpuops.report.page import Page, clean, fold
from gpuops.results.life import History, Transition
from gpuops.store import HostEvent


def list_lines(events: Mapping[str, HostEvent], page: Page) -> Iterator[str]:
    """Yield the state of every node, since when, by whom and why."""
    names = max(map(len, events), default=0)
    states = max((len(event.state) for event in events.values()), default=0)
    for name, event in events.items():
        label = f"{name:<{names}}  {event.state:<{states}}  {_local_time(event.at)}  "
        yield from page.labelled(label, clean(f"{event.who}  {event.why}"), len(label))


def history_lines(history: History, page: Page) -> Iterator[str]:
    """Yield the state of a node, its next states, the gates that it passed, and its earlier states."""
    latest = history.events[-1]
    yield f"{history.host}   {latest.state}   next: {', '.join(history.next_states)}"
    for part, values in latest.fingerprint.items():
        yield from page.labelled(f"  {part}", clean(", ".join(values)), 18)
    for gate in history.gates:
        yield f"  {gate.gate:<16}passed {_local_time(gate.at)}"
    for event in history.events:
        yield from page.labelled(f"  {_local_time(event.at)}  {event.state}", clean(f"{event.who}  {event.why}"), 33)


def transition_lines(result: Transition) -> Iterator[str]:
    """Yield ``gpu01   admitted   by hand`` for each host."""
    for host, event in result.events.items():
        yield f"{host}   {event.state}   {event.why}"


def transition_complaints(result: Transition) -> Iterator[str]:
    """Yield what prevents the transition of the other hosts, those with the same words together, and what to do."""
    complaints = [
        *((host, excluded.why) for host, excluded in result.excluded.items()),
        *((host, format_objection(objection)) for host, objection in result.objections.items()),
        *((host, why) for host, why in result.busy.items() if host not in result.objections),
    ]
    hosts_by_words: dict[str, list[str]] = {}
    for host, words in complaints:
        hosts_by_words.setdefault(words, []).append(host)
    for words, hosts in hosts_by_words.items():
        yield f"{fold(hosts)}: {words}"


def _local_time(at: dt.datetime) -> str:
    """Return the time in this machine's time zone."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"
