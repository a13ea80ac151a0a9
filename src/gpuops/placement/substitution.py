"""A placement after nodes were lost: every other rank stays, and the best spares take the lost ones' place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpuops.errors import LayoutError
from gpuops.layout import Layout
from gpuops.placement.choice import in_groups, placement_of
from gpuops.placement.packing import natural_key
from gpuops.placement.placement import Placement
from gpuops.placement.shape import NodeShape
from gpuops.placement.traffic import Contact, LinkSpeeds, contacts_of, cost


def substitute(
    layout: Layout,
    held: Mapping[str, Sequence[int]],
    shapes: Sequence[NodeShape],
    lost: Collection[str],
    *,
    speeds: LinkSpeeds | None = None,
    force: bool = False,
) -> Placement:
    """Return the placement with a spare for each node of ``lost``; its ``moved`` says which.

    ``held`` are the GPUs, by index, that the ranks of each node have, in rank order. The spare that costs the least
    (see `gpuops.placement.traffic`) is taken; of equals the first by name. Raise `LayoutError` if none fits, or if a
    node that stays is not among ``shapes``.
    """
    shape_by_name = {shape.name: shape for shape in shapes}
    line = {name: _kept(name, gpus, shape_by_name) for name, gpus in held.items() if name not in lost}
    spares = [shape for shape in in_groups(layout, shapes) if shape.name not in held and shape.name not in lost]
    spares.sort(key=lambda shape: (len(shape.gpus), natural_key(shape.name)))
    contacts = contacts_of(layout, [len(gpus) for gpus in held.values()])
    names, moved = list(held), {}
    for old in (name for name in held if name in lost):
        fitting = [spare for spare in spares if len(spare.gpus) >= len(held[old])]
        if not fitting:
            raise LayoutError(f"no spare has the {len(held[old])} GPUs that the ranks of {old} need")
        near = [contact for contact in contacts if names.index(old) in contact.positions]
        costs = [_cost_with({**line, old: spare}, names, near, speeds or LinkSpeeds()) for spare in fitting]
        best = fitting[costs.index(min(costs))]
        spares.remove(best)
        line[old], moved[old] = replace(best, gpus=best.gpus[: len(held[old])]), best.name
    left = [shape for shape in shapes if shape.name not in lost]
    placement = placement_of(layout, [line[name] for name in names], left, force=force)
    return replace(placement, moved=moved, notes=(*placement.notes, *_sentences(placement, moved)))


def _kept(name: str, gpus: Sequence[int], shape_by_name: Mapping[str, NodeShape]) -> NodeShape:
    shape = shape_by_name.get(name)
    gpu_by_index = {gpu.index: gpu for gpu in shape.gpus} if shape else {}
    if shape is None or not gpu_by_index.keys() >= set(gpus):
        lacks = "is not usable" if shape is None else f"lacks GPU {min(set(gpus) - gpu_by_index.keys())}"
        raise LayoutError(f"{name} has ranks that should stay, but it {lacks}; add it to --replace")
    return replace(shape, gpus=tuple(gpu_by_index[index] for index in gpus))


def _cost_with(
    found: Mapping[str, NodeShape], names: Sequence[str], near: Sequence[Contact], speeds: LinkSpeeds
) -> float:
    """Return the cost of the contacts between nodes that are ``found``; other lost nodes have no spare yet."""
    known = [
        replace(contact, positions=tuple(at for at in contact.positions if names[at] in found)) for contact in near
    ]
    anywhere = next(iter(found.values()))
    return cost(known, [found.get(name, anywhere) for name in names], speeds)


def _sentences(placement: Placement, moved: Mapping[str, str]) -> list[str]:
    ranks = {new: placement.on(new) for new in moved.values()}
    return [
        f"ranks r{ranks[new][0].rank} to r{ranks[new][-1].rank} move from {old} to {new}" for old, new in moved.items()
    ]
