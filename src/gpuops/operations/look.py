"""Basic requests: ping hosts, collect their facts, and run one command on them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gpuops.errors import InputError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.probing import Probe
from gpuops.requests import FactsRequest, PingRequest, RunRequest
from gpuops.results.answers import Answers
from gpuops.shell import Command, Completed
from gpuops.transport.agent import AgentTransport
from gpuops.workspace import Workspace

T = TypeVar("T")


def ping(work: Workspace, request: PingRequest) -> Answers[float]:  # noqa: ARG001 - it has no fields
    """Run `true` on every host and return the seconds that each took to answer."""
    answers = _each(work, lambda transport, _: transport.run(Command(("true",))), "reaching nodes")
    return Answers(
        {host: answers.took[host] for host in answers.values}, answers.excluded, answers.took, answers.interrupted
    )


def run(work: Workspace, request: RunRequest) -> Answers[Completed]:
    """Run one command on every host."""
    command = request.command
    if not command or request.timeout <= 0:
        raise InputError("run needs a command, and a timeout of more than 0 seconds")
    line = command if isinstance(command, str) else command[0] if len(command) == 1 else shlex.join(command)
    words = ("sh", "-c", line)
    question = Command(words, timeout_seconds=request.timeout, become="always" if request.become else "never")
    return _each(work, lambda transport, _: transport.run(question), "running")


def facts(work: Workspace, request: FactsRequest) -> Answers[Facts]:
    """Collect the facts of every host in one round trip each."""
    probes = _probes(work, request.probes)
    gathered = work.nodes.gather(probes, "gathering facts", keep_answers=request.keep_answers)
    return Answers(gathered.values, gathered.excluded, gathered.took, gathered.interrupted)


def _probes(work: Workspace, names: Sequence[str]) -> list[Probe[Any]]:
    """Return the probes called ``names``, by default every one that is quick and puts no load on a node."""
    by_name = work.catalogue.probes()
    heavy = [name for name in names if by_name[name].cost == "heavy"]
    if heavy:
        raise InputError(f"{heavy[0]} puts load on a node; gpuops validate --level burnin asks it on idle nodes")
    return [by_name[name] for name in names] or [probe for probe in by_name.values() if probe.cost == "cheap"]


def _each(work: Workspace, visit: Callable[[AgentTransport, Host], T], what: str) -> Answers[T]:
    gathered = work.nodes.collect(visit, what)
    return Answers(gathered.values, gathered.excluded, gathered.took, gathered.interrupted)
