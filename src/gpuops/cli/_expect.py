"""``gpuops allreduce expect``: what an all-reduce should give on these machines, and the sum that says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, saved_host, target_options, tell

if TYPE_CHECKING:
    from gpuops.bandwidth import Efficiency
    from gpuops.facts import Facts
    from gpuops.profile import Profile
    from gpuops.report.expected import NodeClass


@click.command(name="expect")
@target_options
@click.option("--nodes", "together", type=click.IntRange(1), metavar="N", help="A group of N nodes (all of a kind).")
@click.option("--gib", type=click.FloatRange(0.001), metavar="GIB", help="Payload of one rank, in GiB.")
@click.option("--from", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Use saved facts; no network.")
@click.option("--json", "form", flag_value="json", help="One JSON document.")
def command(target: Target, together: int | None, gib: float | None, folder: Path | None, form: str | None) -> None:
    """Show what an all-reduce should give: each figure with its sum and the source of its numbers.

    A node whose profile the inventory names is not asked anything. Without --gib the payload is the least that can be
    judged, 1 GiB or 8 MiB a rank. Where saved facts hold a measurement, the efficiency that it shows counts.
    """
    from gpuops.report.expected import document, lines
    from gpuops.report.page import Page

    classes = list(_classes(target, together, gib, folder))
    if form == "json":
        import json

        click.echo(json.dumps(document(classes), indent=1))
        return
    for line in lines(classes, Page.of(sys.stdout)):
        click.echo(line)


def _classes(target: Target, together: int | None, gib: float | None, folder: Path | None) -> Iterator[NodeClass]:
    """The hosts by what is expected of them."""
    from gpuops.bandwidth import GIB
    from gpuops.cli._health import expected_of
    from gpuops.collective.expectations import bandwidth_key
    from gpuops.report.expected import class_of

    known = _saved(folder) if folder else _asked(target)
    named = folder is None or target.name != "this machine"
    hosts = target.judged_hosts if named else [saved_host(node, Path(str(folder))) for node in known]
    profiles = expected_of(hosts, known)
    alike: dict[tuple[str, int], list[str]] = {}
    for host in hosts:
        profile = profiles[host.name]
        nics = sum(port.rail is not None for port in host.fabric.values()) or profile.get("nic.count", 0)
        alike.setdefault((bandwidth_key(profile), nics), []).append(host.name)
    efficiency = _learnt(known, profiles)
    for (_, nics), names in alike.items():
        size_bytes = round(gib * GIB) if gib else None
        yield class_of(tuple(names), profiles[names[0]], nics, together or len(names), size_bytes, efficiency)


def _saved(folder: Path) -> dict[str, Facts]:
    from gpuops.facts import load_folder
    from gpuops.isolation.node_evidence import all_reduce
    from gpuops.probes.nvidia.nvidia_smi import smi

    return {facts.node: facts for facts in load_folder(folder, [smi, all_reduce])}


def _asked(target: Target) -> dict[str, Facts]:
    """What the nodes say of their GPUs, unless the inventory names every profile; who does not answer is told."""
    from gpuops.facts import gather
    from gpuops.probes.nvidia.nvidia_smi import smi

    if all(host.profile is not None for host in target.judged_hosts):
        return {}
    outcomes = target.each(lambda way, host: gather(host.name, way.batch, [smi]), "reaching nodes")
    for outcome in outcomes:
        if outcome.error is not None:
            tell(str(outcome.error))
    return {outcome.node: outcome.value for outcome in outcomes if outcome.value is not None}


def _learnt(known: Mapping[str, Facts], profiles: Mapping[str, Profile]) -> Efficiency:
    """The efficiencies that a saved measurement shows, else the prior."""
    from gpuops.collective.expectations import Expectations
    from gpuops.isolation.node_evidence import evidence_of, node_evidence_of

    evidence = evidence_of(node_evidence_of(known)[0])
    return Expectations(evidence.fabric, profiles).learnt_from(evidence).efficiency
