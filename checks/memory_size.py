"""The nodes of one profile have the same amount of memory."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.judging.majority import FEWEST_NODES, nodes_by_value, split
from gpuops.probes.host.system import System, system

_MISSING = 0.02
_OTHER_BUILD = 0.3
_FIX = "look for a DIMM that is missing or switched off: dmidecode -t 17, and the BMC's event log; reseat or replace it"


@check(
    needs=system,
    severity="fail",
    tags=("quick", "host"),
    scope="group",
    catches="a DIMM that the firmware switched off: the node has less memory, and less bandwidth to it",
    fix=_FIX,
    fix_in_common="look at what they share: the BIOS, and the kernel's command line",
)
def memory_size(by_node: Mapping[str, System], _profile: Profile) -> Iterator[Finding | NotApplicable]:
    """A node fails if it has at least 2 percent less than most of its peers; one DIMM of 32 is 3 percent.

    The memory that kernels reserve differs less than that. A node with 30 percent less only warns, because it may be
    built differently. At least three nodes of one product are compared. If no amount has a majority, the split is
    reported and no node is blamed. Source: mej/nhc, check_hw_physmem; the limits are our own figures.
    """
    by_product: dict[tuple[str, str], dict[str, float]] = {}
    for node, own in by_node.items():
        if own.memory_gib:
            by_product.setdefault((own.vendor, own.product), {})[node] = own.memory_gib
    usual_by_product = {product: _usual(list(sizes.values())) for product, sizes in by_product.items()}
    splits = [
        split for product, usual in usual_by_product.items() if not usual and (split := _split(by_product[product]))
    ]
    yield from splits
    if not splits and not any(usual_by_product.values()):
        yield NotApplicable("memory is compared between at least three nodes, more than half of which have the same")
    for product, usual in usual_by_product.items():
        if usual:
            yield from _smaller(by_product[product], usual)


def _split(sizes: Mapping[str, float]) -> Finding | None:
    """Return a finding on no node if amounts differ and no majority shows which is wrong."""
    missing = 1 - min(sizes.values()) / max(sizes.values())
    if len(sizes) < 2 or not _MISSING <= missing < _OTHER_BUILD:
        return None
    found = split(nodes_by_value({node: f"{size:.0f} GiB" for node, size in sizes.items()}))
    fix = "find out how much memory the nodes should have; look for missing DIMMs in those with less"
    return Finding(f"split: {found}", expected="one amount", found=found, part="memory", severity="warn", fix=fix)


def _smaller(sizes: Mapping[str, float], usual: float) -> Iterator[Finding]:
    for node, size in sizes.items():
        missing = 1 - size / usual
        if missing >= _MISSING:
            yield Finding(
                f"{size:.0f} GiB of memory, most nodes have {usual:.0f}",
                expected=round(usual),
                found=round(size),
                unit="GiB",
                part="memory",
                host=node,
                severity="warn" if missing >= _OTHER_BUILD else None,
            )


def _usual(sizes: list[float]) -> float | None:
    """Return the size that more than half of the nodes have, to one percent; None if there is none."""
    ordered, near = sorted(sizes), _MISSING / 2
    votes = {
        size: bisect_left(ordered, size * (1 + near)) - bisect_right(ordered, size * (1 - near)) for size in set(sizes)
    }
    size, count = max(votes.items(), key=lambda vote: (vote[1], vote[0]), default=(0.0, 0))
    return size if len(sizes) >= FEWEST_NODES and 2 * count > len(sizes) else None
