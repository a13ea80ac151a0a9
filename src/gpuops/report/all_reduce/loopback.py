"""Text report of the loopback of every HCA: a line per line rate, then the low HCAs with their PCIe links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gpuops.collective.loopback import HcaLoopback, Loopback, LoopbackClass
from gpuops.reasons import Excluded
from gpuops.report.page import Page, clean, fold_briefly, format_node_count

_WIDTH = 10
_MAX_BLOCKS = 10
_LIST = 160
"""Characters of a list of nodes."""
_HOST = "check its slot, BIOS (relaxed ordering, IOMMU) and firmware; compare with an HCA of the same node"
_LINK = "reseat the HCA or its riser, then compare lspci -vv (LnkSta) again"
_ALL = "look for what they share: BIOS (relaxed ordering, NUMA per socket, IOMMU), HCA firmware, clocks"


def lines(loopback: Loopback, page: Page) -> Iterator[str]:
    """Yield what was measured, the rates of each kind, the low HCAs and what was not measured."""
    nodes = format_node_count(len({hca.node for hca in loopback.hcas}))
    about = f"{len(loopback.hcas):,} HCAs of {nodes}, each with itself: ib_write_bw, host memory, no cable"
    yield from page.labelled("loopback", about if loopback.hcas else "no HCA was measured", _WIDTH)
    for each in loopback.classes:
        yield from page.labelled(f"{8 * each.line_gb_per_s:.0f} Gb/s", _class(each), _WIDTH)
    for each in loopback.classes:
        yield from _low(each, page)
    yield from _unknown(loopback.hcas, loopback.excluded, page)
    if loopback.interrupted:
        yield "interrupted before all HCAs were measured; this result is incomplete"


def _class(each: LoopbackClass) -> str:
    if each.median is None:
        return "nothing measured"
    low, high = f"{min(each.rates):.3g}", f"{max(each.rates):.3g}"
    span = f"{low} GB/s" if low == high else f"{low}-{high} GB/s, median {each.median:.3g}"
    limit = f"line rate and PCIe allow {each.limit_gb_per_s:.3g}"
    return f"{len(each.with_status('ok')):,}/{len(each.hcas):,}   {span}; {limit}"


def _low(each: LoopbackClass, page: Page) -> Iterator[str]:
    if each.is_low:
        yield ""
        yield from page.edges(f"FLEET  {len(each.rates):,} HCAs of {8 * each.line_gb_per_s:.0f} Gb/s", "slow")
        why = f"the median is {each.median:.3g} GB/s, and line rate and PCIe allow {each.limit_gb_per_s:.3g}"
        yield from page.labelled("  ", f"{why}; no HCA is blamed for it", 2)
        yield from page.labelled("  do", _ALL, 6)
    low = _grouped(each.with_status("low"), lambda hca: (hca.device, _pcie(hca)))
    for (device, link), hcas in list(low.items())[:_MAX_BLOCKS]:
        yield ""
        yield from page.edges(f"LOW  {_nodes(hcas)} {clean(device)}", "slow")
        yield from page.labelled("  ", f"{_rates(hcas)} of {each.median:.3g} GB/s with itself; {link}", 2)
        yield from page.labelled("  do", _LINK if hcas[0].is_pcie_degraded else _HOST, 6)
    if len(low) > _MAX_BLOCKS:
        rest = sum(len(hcas) for hcas in list(low.values())[_MAX_BLOCKS:])
        yield f"and {rest} more HCAs: --json lists them"


def _grouped(
    hcas: Iterable[HcaLoopback], key: Callable[[HcaLoopback], tuple[str, ...]]
) -> dict[tuple[str, ...], list[HcaLoopback]]:
    groups: dict[tuple[str, ...], list[HcaLoopback]] = {}
    for hca in hcas:
        groups.setdefault(key(hca), []).append(hca)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _nodes(hcas: Iterable[HcaLoopback]) -> str:
    return clean(fold_briefly(dict.fromkeys(hca.node for hca in hcas), _LIST))


def _rates(hcas: Iterable[HcaLoopback]) -> str:
    rates = [hca.gb_per_s or 0.0 for hca in hcas]
    low, high = f"{min(rates):.3g}", f"{max(rates):.3g}"
    return low if low == high else f"{low}-{high}"


def _pcie(hca: HcaLoopback) -> str:
    """Return what is known of the PCIe link."""
    link, limit = hca.pcie, hca.pcie_gb_per_s
    if link is None or limit is None:
        return "the width and speed of its PCIe link are unknown"
    now = f"its PCIe link runs x{link.width} at {link.speed_gt_per_s:g} GT/s, at most {limit:.3g} GB/s"
    if hca.is_pcie_degraded:
        return f"{now}; it can run x{link.max_width} at {link.max_speed_gt_per_s:g} GT/s"
    return f"{now}, as it should"


def _unknown(hcas: Iterable[HcaLoopback], excluded: Mapping[str, Excluded], page: Page) -> Iterator[str]:
    """Yield what was not measured, nodes with the same reason together."""
    groups: dict[str, list[str]] = {}
    for node, reason in excluded.items():
        do = f"; {reason.do}" if reason.do else ""
        groups.setdefault(f"{clean(reason.why)}{clean(do)}", []).append(node)
    for (device, why), own in _grouped((h for h in hcas if h.gb_per_s is None), lambda h: (h.device, h.why)).items():
        groups.setdefault(f"{clean(device)}: {clean(why)}", []).extend(hca.node for hca in own)
    for number, (why, nodes) in enumerate(groups.items()):
        yield from [""] if not number else []
        yield from page.labelled("unknown", f"{clean(fold_briefly(nodes, _LIST))}: {why}", _WIDTH)
