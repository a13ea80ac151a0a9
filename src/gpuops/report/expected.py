"""What an all-reduce should give, for a person and as a document: each figure with its sum, its sources below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gpuops.bandwidth import PRIOR, Cap, Efficiency, ExpectedBandwidth
from gpuops.collective.expectations import Expectations
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup
from gpuops.profile import Profile
from gpuops.report.page import Page, clean, fold

_CARRIERS = {
    "rail": "one GPU and one NIC of each node",
    "ring": "ring",
    "tree": "tree",
    "nvls": "NVLink SHARP",
    "sharp": "SHARP in the network too",
    "measured": "as measured with so many ranks",
}
_GUESSES = "? is a guess: it warns of a node and never fails it. e is learnt here by an all-reduce between nodes."
_WHAT, _SUM = 19, 32


@dataclass(frozen=True)
class NodeClass:
    """Nodes of which the same is expected: their GPUs and NICs, and a figure by what runs, None where it is unknown."""

    nodes: tuple[str, ...]
    profile: str
    gpus: int
    nics: int
    figures: dict[str, ExpectedBandwidth | None]

    @property
    def terms(self) -> list[Cap]:
        """Every cap of every figure."""
        return [term for expected in self.figures.values() if expected for term in expected.terms]


def class_of(
    nodes: tuple[str, ...],
    profile: Profile,
    nics: int,
    together: int,
    size_bytes: int | None = None,
    efficiency: Efficiency = PRIOR,
) -> NodeClass:
    """What ``nodes``, all of one kind, should give alone, on a rail, in pairs, and ``together`` of them in a group."""
    gpus = profile.get("gpu.count", 0)
    ports = tuple(FabricNic(f"nic{rail}", rail, 0.0) for rail in range(nics))
    names = tuple(f"n{number}" for number in range(max(together, 2)))
    fabric = Fabric({name: FabricNode(name, tuple(range(gpus)), ports) for name in names})
    expectations = Expectations(fabric, dict.fromkeys(names, profile), efficiency, size_bytes)
    groups = {"within a node": RankGroup(names[:1]), "  without its SHARP": RankGroup(names[:1], variant="ring")}
    if together > 1:
        groups |= {"a rail of two nodes": RankGroup(names[:2], rail=0), "two nodes": RankGroup(names[:2])}
    if together > 2:
        groups[f"{together} nodes"] = RankGroup(names)
    return NodeClass(nodes, profile.name, gpus, nics, {what: expectations.of(group) for what, group in groups.items()})


def lines(classes: Iterable[NodeClass], page: Page) -> Iterator[str]:
    """The figures of each class with their sums, then where their numbers are from."""
    classes = list(classes)
    for number, each in enumerate(classes):
        yield from [""] if number else []
        yield from page.labelled("", _heading(each), 0)
        for what, expected in each.figures.items():
            yield from _figure(what, expected, page)
        for term in dict.fromkeys((term.name, term.source, term.grade) for term in each.terms):
            yield from page.labelled(f"{term[0]:>9}", clean(f"{term[1]} ({term[2]})"), 11)
    if any(expected and not expected.may_fail for each in classes for expected in each.figures.values()):
        yield ""
        yield from page.labelled("", _GUESSES, 0)


def _heading(each: NodeClass) -> str:
    nodes = "1 node" if len(each.nodes) == 1 else f"{len(each.nodes)} nodes"
    nics = f", {each.nics} NICs" if each.nics else ", no NIC for GPUs"
    return clean(f"{fold(each.nodes)}   {nodes}   {each.profile}, {each.gpus} GPUs{nics}")


def _figure(what: str, expected: ExpectedBandwidth | None, page: Page) -> Iterator[str]:
    if expected is None:
        yield from page.labelled(f"{what:<{_WHAT}}", "unknown: the profile does not say enough", _WHAT + 2)
        return
    label = f"{what:<{_WHAT}}{expected.gb_per_s:>5.0f} GB/s{' ' if expected.may_fail else '?'}"
    for sentence in _sums(expected):
        yield from page.labelled(label, sentence, _SUM)
        label = ""


def _sums(expected: ExpectedBandwidth) -> Iterator[str]:
    """Each cap in words, the one that decides first; of several also its figure, and what carries the data."""
    if len(expected.terms) == 1:
        yield f"{expected.limit}: {expected.terms[0].sum}"
        return
    for term in sorted(expected.terms, key=lambda term: term.gb_per_s):
        yield f"{term.name} {term.gb_per_s:.0f} = {term.sum}"
    yield f"by {_CARRIERS[expected.algorithm]}"


def document(classes: Iterable[NodeClass]) -> dict[str, Any]:
    """The same as plain data; bytes, GB/s, and whether a figure may fail a node."""
    return {"classes": [_class(each) for each in classes]}


def _class(each: NodeClass) -> dict[str, Any]:
    figures = [{"what": what.strip(), **_expected(expected)} for what, expected in each.figures.items()]
    about = {"profile": each.profile, "gpus": each.gpus, "nics": each.nics}
    return {"nodes": list(each.nodes), **about, "figures": figures}


def _expected(expected: ExpectedBandwidth | None) -> dict[str, Any]:
    return {"gb_per_s": None} if expected is None else {**asdict(expected), "may_fail": expected.may_fail}
