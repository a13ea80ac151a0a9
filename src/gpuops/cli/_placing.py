"""The options of verbs that place a layout on nodes, and what they come to: a placement."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import Target, saved_host, target_options, tell

if TYPE_CHECKING:
    from gpuops.facts import Facts
    from gpuops.inventory import Host
    from gpuops.layout import Engine, Layout, ModelSpec
    from gpuops.placement import NodeShape, Placement
    from gpuops.probing import Probe


@dataclass(frozen=True)
class Placing:
    """A layout and the nodes that may hold it, as the command line names them."""

    target: Target
    layout_text: str
    order: str
    folder: Path | None
    all_nodes: bool
    allow_fewer: bool
    force: bool

    @functools.cached_property
    def layout(self) -> Layout:
        """What ``--layout`` and ``--order`` say."""
        from gpuops.layout import parse_layout

        return parse_layout(self.layout_text, self.order)

    @functools.cached_property
    def hosts(self) -> list[Host]:
        """The chosen hosts; with ``--from`` and no inventory, one for each saved node."""
        if self.folder is None or self.target.name != "this machine" or self.target.limit:
            return self.target.judged_hosts
        return [saved_host(known.node, self.folder) for known in self._saved]

    def placement(self, engine: Engine = "other", model: ModelSpec | None = None) -> Placement:
        """Every rank on a GPU of a healthy node; what was overridden or left out is told on stderr.

        `LayoutError` where the layout breaks a rule of ``engine`` or ``model``, or the nodes do not hold it.
        """
        from gpuops.placement import largest_domain, place

        layout = self.layout  # a wrong word is told before any node is asked
        self._object(engine, model, largest_domain(self._shapes) or layout.tp)
        placement = place(layout, self._shapes, allow_fewer=self.allow_fewer, force=self.force)
        for note in placement.notes:
            tell(note)
        return placement

    def _object(self, engine: Engine, model: ModelSpec | None, gpus_per_domain: int) -> None:
        from gpuops.errors import LayoutError
        from gpuops.layout import objections

        refused = []
        for objection in objections(self.layout, gpus_per_domain=gpus_per_domain, engine=engine, model=model):
            if objection.warning or (objection.forceable and self.force):
                tell(f"{'warning' if objection.warning else 'forced'}: {objection.reason}")
            else:
                refused.append(objection.reason + ("; --force overrides this" if objection.forceable else ""))
        if refused:
            raise LayoutError("; ".join(refused))

    @functools.cached_property
    def _shapes(self) -> list[NodeShape]:
        """The nodes that may be used; who is left out, and why, is told."""
        from gpuops.cli._health import profiles_of, unhealthy
        from gpuops.placement import shape_of
        from gpuops.probing import Unknown

        hosts = self.hosts  # a wrong one is told before any node is asked
        known = self._facts()
        out = {} if self.all_nodes else unhealthy(known, profiles_of(hosts, known))
        shapes = []
        for host in hosts:
            shape = shape_of(host, known[host.name]) if host.name in known else None
            if isinstance(shape, Unknown):
                out.setdefault(host.name, shape.why)
            elif shape is not None and host.name not in out:
                shapes.append(shape)
        _tell_left_out(out)
        return shapes

    def _facts(self) -> dict[str, Facts]:
        """The facts by node, saved or gathered; a node without any is told."""
        from gpuops.cli._outcomes import reasons

        if self.folder is not None:
            known = {facts.node: facts for facts in self._saved}
            _tell_left_out({host.name: "no saved facts" for host in self.hosts if host.name not in known})
            return {host.name: known[host.name] for host in self.hosts if host.name in known}
        outcomes = self._gather()
        _tell_left_out({node: why for why, nodes in reasons(outcomes).items() for node in nodes})
        return {outcome.node: outcome.value for outcome in outcomes if outcome.value is not None}

    @functools.cached_property
    def _saved(self) -> list[Facts]:
        from gpuops.facts import load_folder

        return load_folder(self.folder or Path(), _probes())

    def _gather(self) -> list[Any]:
        from gpuops import facts
        from gpuops.fleet import uninterrupted

        probes = _probes()
        return uninterrupted(
            self.target.each(lambda reach, host: facts.gather(host.name, reach.batch, probes), "reaching nodes")
        )


def _probes() -> list[Probe[Any]]:
    """What the quick checks need, and what a node's shape is made of."""
    from gpuops.cli._health import quick_probes
    from gpuops.probes.pcie import pcie
    from gpuops.probes.topo import topo

    return quick_probes(topo, pcie)


def _tell_left_out(reasons: Mapping[str, str]) -> None:
    from gpuops.report.page import fold

    for why in dict.fromkeys(reasons.values()):
        tell(f"left out: {fold(node for node, reason in reasons.items() if reason == why)}: {why}")


def placing_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose nodes and a layout; the verb gets them as ``plan``."""

    @functools.wraps(verb)
    def with_plan(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in Placing.__dataclass_fields__}
        return verb(plan=Placing(**chosen), **options)

    for option in reversed(_OPTIONS):
        with_plan = option(with_plan)
    return target_options(with_plan)


_OPTIONS = [
    click.option(
        "--layout",
        "layout_text",
        required=True,
        metavar="DEGREES",
        help="dp=2,pp=2,tp=4; also cp, ep, zero, mbs, chunks, vpp, offload, recompute, sp.",
    ),
    click.option(
        "--order",
        default="tp-cp-ep-dp-pp",
        show_default=True,
        metavar="AXES",
        help="The order that ranks count in, the fastest axis first.",
    ),
    click.option(
        "--from", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Use saved facts; no network."
    ),
    click.option("--all-nodes", is_flag=True, help="Take nodes that fail a check too."),
    click.option("--allow-fewer", is_flag=True, help="Leave GPUs idle where nodes have unequally many."),
    click.option("--force", is_flag=True, help="Override rules that cost speed and break nothing."),
]
