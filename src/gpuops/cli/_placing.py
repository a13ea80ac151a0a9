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
    from gpuops.cli._candidates import Candidate, Candidates
    from gpuops.inventory import Host
    from gpuops.layout import Engine, Layout, ModelSpec
    from gpuops.placement import NodeShape, Placement


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
        if self.folder is None or self._has_inventory:
            return self.target.judged_hosts
        return [saved_host(node, self.folder) for node in self._known]

    @property
    def _has_inventory(self) -> bool:
        return self.target.name != "this machine" or bool(self.target.limit)

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
        from gpuops.layout import rule_violations

        refused = []
        for objection in rule_violations(self.layout, gpus_per_domain=gpus_per_domain, engine=engine, model=model):
            if objection.warning or (objection.forceable and self.force):
                tell(f"{'warning' if objection.warning else 'forced'}: {objection.reason}")
            else:
                refused.append(objection.reason + ("; --force overrides this" if objection.forceable else ""))
        if refused:
            raise LayoutError("; ".join(refused))

    @functools.cached_property
    def _shapes(self) -> list[NodeShape]:
        """The nodes that may be used; who is left out, and why, is told."""
        from gpuops.probing import Unknown

        hosts = self.hosts  # a wrong one is told before any node is asked
        found = {host.name: self._known[host.name] for host in hosts if host.name in self._known}
        if self.folder is not None:
            _tell_left_out({host.name: "no saved facts" for host in hosts if host.name not in found})
        out = {node: reason.why for node, reason in self._candidates.unhealthy(found).items()}
        shapes = []
        for node, candidate in found.items():
            if isinstance(candidate.shape, Unknown):
                out.setdefault(node, candidate.shape.why)
            elif node not in out:
                shapes.append(candidate.shape)
        _tell_left_out(out)
        return shapes

    @functools.cached_property
    def _known(self) -> dict[str, Candidate]:
        """Every node of which facts are saved, or can be gathered; one that does not answer is told."""
        from gpuops.cli._outcomes import reasons

        if self.folder is not None:
            hosts = self.target.judged_hosts if self._has_inventory else []
            return self._candidates.saved(self.folder, {host.name: host for host in hosts})
        outcomes = self._candidates.gathered(self.target)
        _tell_left_out({node: why for why, nodes in reasons(outcomes).items() for node in nodes})
        return {outcome.node: outcome.value for outcome in outcomes if outcome.value is not None}

    @functools.cached_property
    def _candidates(self) -> Candidates:
        from gpuops.cli._candidates import Candidates

        return Candidates(judged=not self.all_nodes)


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
